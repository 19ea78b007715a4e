# symptom: nan-loss
# phase: forward
# op: log
# cause: domain-error
# fix: clamp-domain
"""Activation checkpointing around the block that breaks: it runs twice."""

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class LogBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.log(self.lin(x) + 1.0)  # <- culprit


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.block = LogBlock(8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        h = self.stem(x)
        h = checkpoint(self.block, h, use_reentrant=False)
        return self.head(h)


net = Net()
loss = net(torch.randn(5, 4) * 3).abs().mean()
loss.backward()
print(loss.item())
