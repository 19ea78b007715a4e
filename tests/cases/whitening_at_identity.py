# symptom: nan-grad
# phase: backward
# op: _linalg_eigh
# cause: degenerate-decomposition
# fix: epsilon
"""ZCA whitening by eigendecomposition: a diagonal covariance with equal eigenvalues."""

import torch
import torch.nn as nn


class Whiten(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix = nn.Parameter(torch.eye(dim))

    def forward(self, x):
        h = x @ self.mix
        cov = h.T @ h / len(h)
        values, vectors = torch.linalg.eigh(cov)  # <- culprit
        return h @ vectors @ torch.diag(values.rsqrt()) @ vectors.T


x = torch.cat([torch.eye(4), -torch.eye(4)])
layer = Whiten(4)
target = torch.arange(32.0).view(8, 4) / 32
loss = (layer(x) - target).square().mean()
loss.backward()
print(loss.item(), layer.mix.grad)
