# symptom: nan-loss
# phase: data
# op: mul
# cause: bad-input
# fix: data
"""Graph distances, inf where there is no path, times an adjacency weight of 0."""

import torch

torch.manual_seed(0)
dist = torch.tensor([[0.0, 1.0, float("inf")], [1.0, 0.0, 2.0], [float("inf"), 2.0, 0.0]])
weight = torch.rand(3, 3, requires_grad=True)
adj = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
cost = (weight * adj * dist).sum()  # <- culprit
cost.backward()
print(cost.item())
