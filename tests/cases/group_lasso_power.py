# symptom: nan-grad
# phase: backward
# op: pow
# cause: singular-derivative
# fix: stable-op
"""Sparse regression with a group-lasso penalty on zero-initialised groups."""

import torch

torch.manual_seed(0)

groups = torch.zeros(5, 4, requires_grad=True)
design = torch.randn(30, 20)
response = torch.randn(30)

residual = design @ groups.flatten() - response
penalty = (groups * groups).sum(dim=1) ** 0.5  # <- culprit
loss = residual.square().mean() + 0.1 * penalty.sum()
loss.backward()
print(loss.item(), groups.grad)
