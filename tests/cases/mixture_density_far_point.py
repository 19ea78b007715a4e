# symptom: inf-loss
# phase: forward
# op: log
# cause: log-zero
# fix: stable-op
"""Mixture of Gaussians: exp of the component log-densities, summed, then log."""

import math

import torch
import torch.nn as nn

torch.manual_seed(0)


class Mixture(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.mean = nn.Parameter(torch.linspace(-2, 2, k))
        self.log_std = nn.Parameter(torch.zeros(k))
        self.weight = nn.Parameter(torch.zeros(k))

    def log_components(self, x):
        z = (x[:, None] - self.mean) / self.log_std.exp()
        normal = -0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi)
        return normal + self.weight.log_softmax(0)

    def nll(self, x):
        return -self.log_components(x).exp().sum(1).log().mean()  # <- culprit


x = torch.randn(40)
model = Mixture(3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(5):
    if step == 3:
        x[11] = 25.0
    loss = model.nll(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
