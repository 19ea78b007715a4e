# symptom: inf-loss
# phase: forward
# op: log
# cause: underflow
# fix: stable-op
"""Coin-flip likelihood as a product."""

import torch

torch.manual_seed(0)
flips = (torch.rand(300) < 0.4).float()
theta = torch.tensor(0.0, requires_grad=True)
p = torch.sigmoid(theta)
likelihood = torch.prod(torch.where(flips == 1, p, 1 - p))
loss = -torch.log(likelihood)  # <- culprit
loss.backward()
print(loss.item(), theta.grad)
