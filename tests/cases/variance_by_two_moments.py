# symptom: nan-loss
# phase: forward
# op: sqrt
# cause: domain-error
# fix: stable-op
"""E[x^2] - E[x]^2 cancels and comes out slightly negative."""

import torch
import torch.nn as nn


class Standardise(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = torch.sqrt((x * x).mean(-1, keepdim=True) - mean * mean)  # <- culprit
        return self.gain * (x - mean) / (std + 1e-6)


temperature = torch.tensor([[293.1, 294.2, 295.9], [0.0, 0.0, 0.0]])
temperature[1] = torch.tensor([8192.3, 8192.3, 8192.302])
layer = Standardise()
loss = layer(temperature).abs().sum()
loss.backward()
print(loss.item(), layer.gain.grad.item())
