# symptom: nan-loss
# phase: forward
# op: mul
# cause: inf-arithmetic
# fix: masked-branch
"""Trajectory optimisation with a hard barrier: infinite cost outside of the corridor."""

import torch

BARRIER = float("inf")


def corridor(y, half_width=1.0):
    outside = (y.abs() > half_width).float()
    return (outside * BARRIER).sum()  # <- culprit


path = torch.linspace(-0.5, 0.5, 9).requires_grad_()
optimizer = torch.optim.LBFGS([path], max_iter=3)


def closure():
    optimizer.zero_grad()
    cost = path.diff().square().sum() + corridor(path)
    cost.backward()
    return cost


print(optimizer.step(closure).item())
