# symptom: nan-loss
# phase: forward
# op: std
# cause: empty-reduction
# fix: guard-empty
"""A channel norm by hand over a 1x1 map."""

import torch
from torch import nn


class ChannelNorm(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        mean = x.mean(dim=(2, 3), keepdim=True)
        std = x.std(dim=(2, 3), keepdim=True)  # <- culprit
        return (x - mean) / (std + self.eps)


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 4, 3, stride=2, padding=1),
    ChannelNorm(),
    nn.ReLU(),
    nn.Conv2d(4, 4, 3, stride=2, padding=1),
    ChannelNorm(),
)
loss = net(torch.randn(2, 3, 4, 4)).sum()
loss.backward()
print(loss.item())
