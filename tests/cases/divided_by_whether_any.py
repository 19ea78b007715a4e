# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""A masked sum that is divided by whether the mask holds anything."""

import torch

torch.manual_seed(0)
w = torch.randn(5, requires_grad=True)
x = torch.randn(3, 4, 5)
valid = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]], dtype=torch.bool)
score = ((x @ w) * valid).sum(1) / valid.any(1)  # <- culprit
loss = score.square().mean()
loss.backward()
