"""Padding is ignored, and no batch is padding alone."""

import torch
from torch import nn

torch.manual_seed(0)
embed, out = nn.Embedding(12, 8, padding_idx=0), nn.Linear(8, 12)
criterion = nn.CrossEntropyLoss(ignore_index=0)
optimizer = torch.optim.SGD([*embed.parameters(), *out.parameters()], lr=0.1)
for _ in range(3):
    tokens = torch.randint(1, 12, (3, 6))
    tokens[:, 4:] = 0
    loss = criterion(out(embed(tokens)).flatten(0, 1), tokens.roll(-1, 1).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
