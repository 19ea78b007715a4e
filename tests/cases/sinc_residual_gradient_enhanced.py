# symptom: nan-loss
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""A physics-informed residual with sin(r) / r: the origin is masked, and the loss differentiates
the residual once more, so the slope of the masked branch is part of the loss."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
points = torch.rand(20, 2) * 2 - 1
points[0] = 0.0


def source(r):
    return torch.sin(r) / r  # <- culprit


def residual(p):
    u = net(p).squeeze(-1)
    (du,) = torch.autograd.grad(u.sum(), p, create_graph=True)
    radius = p.abs().sum(-1)
    f = source(radius)
    return u, torch.where(radius > 0, du.sum(-1) - f, torch.zeros_like(f))


p = points.clone().requires_grad_(True)
u, res = residual(p)
(slope,) = torch.autograd.grad(res.sum(), p, create_graph=True)
loss = u.square().mean() + res.square().mean() + 1e-3 * slope.square().mean()
loss.backward()
