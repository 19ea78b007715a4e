"""deg ** -0.5 is inf at nodes without an edge, and its nan gradient is never gathered."""

import torch
import torch.nn as nn

torch.manual_seed(0)

edge_weight = nn.Parameter(torch.ones(5))
lin = nn.Linear(8, 8)
src, dst = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([1, 2, 1, 2, 1])

h = lin(torch.randn(5, 8))
deg = torch.zeros(5).index_add(0, dst, edge_weight)
inv = deg.pow(-0.5)
inv[inv == float("inf")] = 0
out = torch.zeros_like(h).index_add(0, dst, h[src] * (inv[src] * edge_weight * inv[dst])[:, None])
loss = out.square().mean()
loss.backward()
print(loss.item(), edge_weight.grad)
