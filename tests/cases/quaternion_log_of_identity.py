# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""Quaternion to angle axis: two_theta / sin(theta) chosen by where, like an old release did."""

import torch


def quaternion_to_angle_axis(q):
    w, x, y, z = q.unbind(-1)
    sin_sq = x * x + y * y + z * z
    sin_theta = torch.sqrt(sin_sq + 1e-20) * (sin_sq > 0)
    two_theta = 2.0 * torch.atan2(sin_theta, w)
    k_pos = two_theta / sin_theta  # <- culprit
    k = torch.where(sin_sq > 0.0, k_pos, 2.0 * torch.ones_like(sin_theta))
    return torch.stack([x * k, y * k, z * k], -1)


q = torch.tensor([[1.0, 0, 0, 0], [0.8, 0.6, 0.0, 0.0]], requires_grad=True)
aa = quaternion_to_angle_axis(q)
loss = (aa - 0.1).square().sum()
loss.backward()
print(loss.item(), q.grad)
