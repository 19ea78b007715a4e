# symptom: nan-grad
# phase: backward
# op: pow
# cause: singular-derivative
# fix: stable-op
"""Gaussian process with a Matern kernel: the gradients of its two factors cancel at distance 0."""

import math

import torch

torch.manual_seed(0)
x = torch.rand(6, 2)
y = torch.sin(5 * x[:, :1])
log_length = torch.zeros(2, requires_grad=True)

difference = (x[:, None] - x[None]) / log_length.exp()
r = difference.pow(2).sum(-1).pow(0.5)  # <- culprit
kernel = (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r)
factor = torch.linalg.cholesky(kernel + 0.1 * torch.eye(6))
loss = (y * torch.cholesky_solve(y, factor)).sum() + factor.diagonal().log().sum()
loss.backward()
