# symptom: nan-grad
# phase: backward
# op: _linalg_svd
# cause: degenerate-decomposition
# fix: epsilon
"""Procrustes alignment of planar points in 3-D: two singular values are zero."""

import torch
import torch.nn as nn

torch.manual_seed(0)


def best_rotation(source, target):
    u, _, vt = torch.linalg.svd(source.T @ target)  # <- culprit
    return u @ vt


class Deform(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.stretch = nn.Parameter(torch.ones(n, 1))

    def forward(self, line):
        return line * self.stretch


line = torch.linspace(-1, 1, 6)[:, None] * torch.tensor([[1.0, 0.0, 0.0]])
goal = torch.linspace(-1, 1, 6)[:, None] * torch.tensor([[0.0, 1.0, 0.0]])
model = Deform(6)
moved = model(line)
loss = (moved @ best_rotation(moved, goal) - goal + 0.1).square().mean()
loss.backward()
print(loss.item(), model.stretch.grad.flatten())
