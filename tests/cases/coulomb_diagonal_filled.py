# symptom: nan-grad
# phase: backward
# op: reciprocal
# cause: masked-branch
# fix: masked-branch
"""Coulomb energy: 1/r with the diagonal filled in place."""

import torch

x = torch.tensor([0.0, 1.0, 3.0], requires_grad=True)
r = (x[:, None] - x[None, :]).abs()
inv = 1 / r  # <- culprit
inv.fill_diagonal_(0.0)
loss = inv.sum() / 2
loss.backward()
print(loss.item(), x.grad)
