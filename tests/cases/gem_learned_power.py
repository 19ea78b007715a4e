# symptom: nan-grad
# phase: backward
# op: pow
# cause: singular-derivative
# fix: epsilon
"""GeM pooling with clamp(min=0) and learnable p."""

import torch
from torch import nn


class GeM(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return x.clamp(min=0).pow(self.p).mean((-2, -1)).pow(1.0 / self.p)  # <- culprit


torch.manual_seed(0)
conv = nn.Conv2d(1, 2, 3)
with torch.no_grad():
    conv.bias.copy_(torch.tensor([-9.0, 0.0]))
out = GeM()(conv(torch.rand(2, 1, 5, 5)))
loss = (out - 1).pow(2).sum()
loss.backward()
print(loss.item(), conv.weight.grad)
