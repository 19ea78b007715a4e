# symptom: nan-loss
# phase: forward
# op: pow
# cause: overflow
# fix: dtype
"""Kurtosis of unscaled revenue as a regulariser."""

import torch
import torch.nn as nn

torch.manual_seed(0)


def kurtosis(x):
    d = x - x.mean()
    return (d**4).mean() / (d**2).mean() ** 2  # <- culprit


revenue = torch.rand(12, 3) * 8e10
net = nn.Linear(3, 1)
loss = kurtosis(net(revenue))
loss.backward()
print(loss.item())
