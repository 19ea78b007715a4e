# symptom: nan-grad
# phase: backward
# op: pow
# cause: masked-branch
# fix: masked-branch
"""GCN normalisation of a learnt adjacency; isolated nodes are patched in place."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class LearntGraph(nn.Module):
    def __init__(self, edges, width):
        super().__init__()
        self.strength = nn.Parameter(torch.zeros(edges.shape))
        self.lin = nn.Linear(width, width)
        self.register_buffer("edges", edges)

    def norm(self):
        adj = torch.sigmoid(self.strength) * self.edges
        inv = adj.sum(1).pow(-0.5)  # <- culprit
        inv[inv == float("inf")] = 0
        return inv[:, None] * adj * inv[None, :]

    def forward(self, x):
        return self.norm() @ self.lin(x)


edges = torch.zeros(5, 5)
edges[[0, 1, 2, 1], [1, 2, 1, 0]] = 1.0
model = LearntGraph(edges, 8)
loss = model(torch.randn(5, 8)).square().mean()
loss.backward()
print(loss.item(), model.strength.grad)
