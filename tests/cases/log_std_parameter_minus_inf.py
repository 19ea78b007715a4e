# symptom: inf-loss
# phase: data
# op: sub
# cause: bad-parameter
# fix: init
"""Gaussian policy whose log-std starts at log(0), given as -inf."""

import torch
import torch.nn as nn


class Gaussian(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.mean = nn.Linear(2, 1)
        self.log_std = nn.Parameter(torch.tensor([start]))

    def forward(self, x, action):
        var = torch.exp(2 * self.log_std) + 0.5
        return -0.5 * (action - self.mean(x)) ** 2 / var - self.log_std  # <- culprit


torch.manual_seed(0)
policy = Gaussian(float("-inf"))
loss = -policy(torch.randn(4, 2), torch.randn(4, 1)).mean()
loss.backward()
print(loss.item())
