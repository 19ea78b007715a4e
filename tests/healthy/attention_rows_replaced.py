"""A fully masked query row: scores of finfo.min, weights multiplied by the mask afterwards."""

import torch

torch.manual_seed(0)
query = torch.randn(3, 4, requires_grad=True)
key = torch.randn(3, 4)
allowed = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
scores = (query @ key.T).masked_fill(~allowed, torch.finfo(torch.float32).min)
weights = scores.softmax(-1) * allowed
loss = (weights @ key).square().mean()
loss.backward()
print(loss.item(), query.grad)
