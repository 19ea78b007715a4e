# symptom: nan-loss
# phase: forward
# op: rsqrt
# cause: zero-division
# fix: epsilon
"""RMS norm of a padded row, with the epsilon outside of the root."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(4, 4, bias=False)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
x = torch.randn(3, 4)
x[1] = 0
for _ in range(3):
    h = layer(x)
    h = h * (torch.rsqrt(h.pow(2).mean(-1, keepdim=True)) + 1e-6)  # <- culprit
    loss = (h - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
