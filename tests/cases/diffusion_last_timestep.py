# symptom: inf-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""Prediction of x0 from noise: alpha is exactly 0 at the last timestep."""

import torch
import torch.nn as nn

torch.manual_seed(0)
T = 10


def alpha_bar(steps):
    f = torch.cos(torch.linspace(0, 1, steps + 1) * torch.pi / 2).square()
    return (f / f[0]).round(decimals=5)


class EpsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))

    def forward(self, x, t):
        return self.net(torch.cat([x, t[:, None] / T], dim=1))


def predict_x0(x_t, eps, a):
    return (x_t - (1 - a).sqrt() * eps) / a.sqrt()  # <- culprit


schedule = alpha_bar(T)
net = EpsNet()
x0 = torch.randn(8, 4)
for t in (torch.arange(8), torch.arange(3, 11)):
    a = schedule[t][:, None]
    noise = torch.randn_like(x0)
    x_t = a.sqrt() * x0 + (1 - a).sqrt() * noise
    estimate = predict_x0(x_t, net(x_t, t.float()), a)
    loss = (estimate - x0).square().mean()
    net.zero_grad()
    loss.backward()
    print(loss.item())
