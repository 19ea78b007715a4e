# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""Masked autoencoder: the loss is averaged over hidden patches, and this batch hides none."""

import torch
import torch.nn as nn

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(12, 6), nn.GELU(), nn.Linear(6, 12))
patches = torch.randn(4, 12)

for step, keep in enumerate([0.5, 0.8, 1.0]):
    hidden = (torch.rand(4, 12) >= keep).float()
    rebuilt = model(patches * (1 - hidden))
    loss = ((rebuilt - patches) ** 2 * hidden).sum() / hidden.sum()  # <- culprit
    model.zero_grad()
    loss.backward()
    print(step, loss.item())
