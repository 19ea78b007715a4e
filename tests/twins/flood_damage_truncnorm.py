"""Relative building damage in [0, 1] as a truncated normal whose parameters a network predicts."""

import math

import torch
import torch.nn as nn

torch.manual_seed(0)


def std_normal_cdf(z):  # -
    return 0.5 * (1.0 + torch.erf(z / math.sqrt(2.0)))  # -


def log_mass(a, b):
    return torch.log(std_normal_cdf(b) - std_normal_cdf(a))  # -
    # + right = a > 0
    # + log_lo = torch.special.log_ndtr(torch.where(right, -b, a))
    # + log_hi = torch.special.log_ndtr(torch.where(right, -a, b))
    # + return log_hi + torch.log(-torch.expm1(log_lo - log_hi))


class DamageModel(nn.Module):
    def __init__(self, n_feature, d=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_feature, d), nn.Tanh())
        self.loc = nn.Linear(d, 1)
        self.scale = nn.Linear(d, 1)

    def forward(self, x):
        h = self.trunk(x)
        loc = self.loc(h).squeeze(1)
        scale = 0.02 + nn.functional.softplus(self.scale(h)).squeeze(1)
        return loc, scale


def truncated_nll(damage, loc, scale, low=0.0, high=1.0):
    z = (damage - loc) / scale
    log_pdf = -0.5 * z * z - math.log(math.sqrt(2 * math.pi)) - scale.log()
    return -(log_pdf - log_mass((low - loc) / scale, (high - loc) / scale)).mean()


def survey(n=300):
    depth = torch.rand(n) * 2.5
    area = torch.randn(n)
    basement = (torch.rand(n) < 0.4).float()
    rate = 30.0 * torch.exp(-0.5 * depth - 0.3 * basement)
    damage = torch.empty(n).exponential_() / rate
    return torch.stack((depth, area, basement), 1), damage.clamp(1e-3, 1 - 1e-3)


x, damage = survey()
net = DamageModel(x.shape[1])
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(250):
    loc, scale = net(x)
    loss = truncated_nll(damage, loc, scale)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if epoch % 10 == 0 or not torch.isfinite(loss):
        print(epoch, round(loss.item(), 4), "loc", round(loc.mean().item(), 3))
    if not torch.isfinite(loss):
        break
