# symptom: nan-grad
# phase: backward
# op: linalg_qr
# cause: degenerate-decomposition
# fix: epsilon
"""Orthogonalise a weight with a zero column."""

import torch

W = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], requires_grad=True)
Q, R = torch.linalg.qr(W)  # <- culprit
loss = (Q * torch.arange(6.0).view(3, 2)).sum()
loss.backward()
print(W.grad)
