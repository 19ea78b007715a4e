# symptom: inf-loss
# phase: forward
# op: _linalg_det
# cause: overflow
# fix: dtype
"""The determinant of a matrix in the wrong unit: regular, and its products leave float32."""

import torch

covariance = torch.tensor([[4e20, 1e20], [1e20, 3e20]], requires_grad=True)
volume = torch.linalg.det(covariance)  # <- culprit
volume.backward()
print(volume.item())
print(covariance.grad)
