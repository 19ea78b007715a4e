# symptom: inf-grad
# phase: backward
# op: asin
# cause: singular-derivative
# fix: clamp-domain
"""Pitch from a gravity vector. clamp(-1, 1) passes the gradient on at its edge."""

import torch

gravity = torch.tensor([[0.0, 0.0, 9.81], [9.81, 0.0, 0.0], [3.0, 1.0, 9.0]])
scale = torch.tensor(1.0, requires_grad=True)

ratio = scale * gravity[:, 0] / 9.81
pitch = torch.asin(ratio.clamp(-1.0, 1.0))  # <- culprit
loss = pitch.sum()
loss.backward()
print(loss.item(), scale.grad.item())
