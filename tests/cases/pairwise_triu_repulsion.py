# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: masked-branch
# fix: masked-branch
# or fix: stable-op (where fixes are tried: the slope of a norm is 0 at 0, and nothing need be masked)
"""Spread points apart: only the upper triangle of the distance matrix is used."""

import torch

torch.manual_seed(0)
points = torch.rand(6, 2, requires_grad=True)

difference = points.unsqueeze(0) - points.unsqueeze(1)
distance = (difference**2).sum(dim=2).sqrt()  # <- culprit
loss = torch.exp(-distance).triu(diagonal=1).sum()
loss.backward()
print(loss.item(), points.grad)
