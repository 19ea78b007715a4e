"""The usual degree normalisation: inf of the lonely node is replaced, and degrees carry no gradient."""

import torch
from torch import nn

torch.manual_seed(0)
edges = torch.tensor([[0, 1], [1, 0]])
degree = torch.zeros(3).index_add(0, edges[1], torch.ones(2))
inverse = degree.pow(-0.5)
inverse[inverse == float("inf")] = 0
norm = inverse[edges[0]] * inverse[edges[1]]
lin = nn.Linear(2, 2)
x = lin(torch.randn(3, 2))
out = torch.zeros(3, 2).index_add(0, edges[1], norm[:, None] * x[edges[0]])
loss = out.square().mean()
loss.backward()
print(loss.item())
