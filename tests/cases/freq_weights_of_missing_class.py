# symptom: nan-loss
# phase: forward
# op: reciprocal
# cause: zero-division
# fix: guard-empty
"""Inverse-frequency class weights; a class never occurs."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
labels = torch.tensor([0, 0, 1, 3, 3])
counts = torch.bincount(labels, minlength=4)
weights = 1.0 / counts  # <- culprit
weights = weights / weights.sum()
net = torch.nn.Linear(6, 4)
loss = F.cross_entropy(net(torch.randn(5, 6)), labels, weight=weights)
loss.backward()
print(loss.item())
