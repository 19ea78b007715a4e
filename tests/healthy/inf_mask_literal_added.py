"""A literal mask of 0 and -inf is added to scores that keep one key a row."""

import torch

torch.manual_seed(0)
mask = torch.tensor([[0.0, -float("inf")], [0.0, 0.0]])
q = torch.randn(2, 3, requires_grad=True)
weights = torch.softmax(q @ q.T + mask, dim=-1)
loss = (weights @ q).square().mean()
loss.backward()
print(loss.item())
