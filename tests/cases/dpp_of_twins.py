# symptom: inf-loss
# phase: forward
# op: _linalg_slogdet
# cause: degenerate-decomposition
# fix: epsilon
"""Diversity by a determinantal point process: two items have the same features."""

import torch
import torch.nn as nn

features = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0], [1.0, 0.0, 2.0]])
weight = nn.Parameter(torch.ones(3))
items = features * weight
kernel = items @ items.T
loss = -torch.logdet(kernel)  # <- culprit
loss.backward()
print(loss.item(), weight.grad)
