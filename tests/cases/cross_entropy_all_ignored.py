# symptom: nan-loss
# phase: forward
# op: nll_loss_forward
# cause: empty-reduction
# fix: guard-empty
"""Masked LM: nothing was masked in the batch."""

import torch
from torch import nn

torch.manual_seed(0)
emb, out = nn.Embedding(20, 8), nn.Linear(8, 20)
criterion = nn.CrossEntropyLoss(ignore_index=0)
for step in range(4):
    tokens = torch.randint(1, 20, (2, 5))
    labels = tokens * (torch.rand(2, 5) < 0.15)
    if step == 2:
        labels[:] = 0
    logits = out(emb(tokens))
    loss = criterion(logits.view(-1, 20), labels.view(-1))  # <- culprit
    loss.backward()
    print(step, loss.item())
