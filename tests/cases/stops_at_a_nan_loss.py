# symptom: nan-loss
# phase: forward
# op: sqrt
# cause: domain-error
# fix: clamp-domain
"""Detection training that stops at a NaN loss, as the reference does."""

import math

import torch
from torch import nn


class GIoU(nn.Module):
    def forward(self, d2):
        return torch.sqrt(1 - d2).mean()  # <- culprit


torch.manual_seed(0)
fc = nn.Linear(4, 4)
opt = torch.optim.SGD(fc.parameters(), lr=0.1)
for it in range(5):
    d2 = fc(torch.randn(6, 4) * (it + 1)).pow(2).sum(1)
    loss = GIoU()(d2)
    if not math.isfinite(loss.item()):
        raise ValueError(f"Loss is {loss.item()}, stopping training")
    opt.zero_grad()
    loss.backward()
    opt.step()
