# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""A hand-written instance norm with its epsilon in the wrong place."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class InstanceNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1))
        self.eps = 1e-5

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return self.weight * centred / (torch.sqrt(variance) + self.eps)  # <- culprit


net = nn.Sequential(nn.Conv1d(1, 3, 3, bias=False), InstanceNorm(3), nn.ReLU(), nn.Conv1d(3, 1, 3))
signal = torch.randn(4, 1, 20)
signal[1] = 0.0  # sensor off
loss = net(signal).square().mean()
loss.backward()
print(loss.item(), net[0].weight.grad.isnan().sum().item())
