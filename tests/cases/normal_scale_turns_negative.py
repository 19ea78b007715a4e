# symptom: nan-loss
# phase: forward
# op: log
# cause: domain-error
# fix: clamp-domain
"""Density regression where the scale head is a bare linear layer."""

import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(1)


class Heteroscedastic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 12), nn.Tanh())
        self.mean = nn.Linear(12, 1)
        self.scale = nn.Linear(12, 1)

    def forward(self, x):
        h = self.body(x)
        return Normal(self.mean(h), self.scale(h), validate_args=False)


x, y = torch.randn(16, 2), torch.randn(16, 1)
model = Heteroscedastic()
loss = -model(x).log_prob(y).mean()  # <- culprit
loss.backward()
print(loss.item())
