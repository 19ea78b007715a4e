# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""Fit a camera translation to 2-D detections."""

import torch

FOCAL = 80.0


def project(points):
    depth = points[:, 2:]
    return FOCAL * points[:, :2] / depth  # <- culprit


def reprojection_error(points, pixels):
    uv = project(points)
    in_front = points[:, 2] > 1e-3
    return (uv - pixels)[in_front].abs().mean()


points = torch.tensor([[0.1, 0.2, 2.0], [0.4, -0.3, 0.0], [1.0, 0.5, 4.0]])
pixels = torch.tensor([[5.0, 6.0], [0.0, 0.0], [18.0, 12.0]])
shift = torch.zeros(3, requires_grad=True)

optimizer = torch.optim.SGD([shift], lr=1e-3)
for _ in range(3):
    loss = reprojection_error(points + shift, pixels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), shift.grad)
