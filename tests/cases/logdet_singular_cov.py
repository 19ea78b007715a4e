# symptom: inf-loss
# phase: forward
# op: _linalg_slogdet
# cause: degenerate-decomposition
# fix: epsilon
"""Log-determinant of a singular covariance."""

import torch

torch.manual_seed(0)
W = torch.randn(4, 2, requires_grad=True)
X = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]])
cov = X.T @ X + 0 * (W.T @ W)
loss = torch.logdet(cov) + W.pow(2).sum()  # <- culprit
loss.backward()
print(loss.item())
