"""Rows with a missing cell are dropped before training."""

import torch
from torch import nn

torch.manual_seed(0)
table = torch.tensor([[1.0, 2.0], [float("nan"), 1.0], [0.5, -1.0], [2.0, 0.3]])
table = table[table.isfinite().all(1)]
net = nn.Linear(2, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(3):
    loss = net(table).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
