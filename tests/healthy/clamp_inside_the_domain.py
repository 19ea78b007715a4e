"""Angles between unit vectors, the cosine kept off the edge of acos."""

import torch
from torch.nn import functional as F

first = torch.tensor([[1.0, 0.0], [0.6, 0.8]], requires_grad=True)
second = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
cosine = (F.normalize(first, dim=1) * F.normalize(second, dim=1)).sum(1)
loss = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6)).mean()
loss.backward()
print(loss.item(), first.grad)
