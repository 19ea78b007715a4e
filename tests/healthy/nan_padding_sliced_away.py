"""Readings are padded with nan to one length; every sequence is cut before it is used."""

import torch
import torch.nn as nn

torch.manual_seed(0)

lengths = [5, 3, 4]
batch = torch.full((3, 6, 2), float("nan"))
for row, n in enumerate(lengths):
    batch[row, :n] = torch.randn(n, 2)
gru = nn.GRU(2, 4, batch_first=True)
head = nn.Linear(4, 1)
losses = []
for row, n in enumerate(lengths):
    _, h = gru(batch[row : row + 1, :n])
    losses.append(head(h[-1]).square().mean())
loss = torch.stack(losses).mean()
loss.backward()
print(loss.item())
