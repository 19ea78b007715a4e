# symptom: inf-loss
# phase: forward
# op: sum
# cause: overflow
# fix: dtype
"""Reconstruction error summed over a picture in float16."""

import torch
import torch.nn as nn

torch.manual_seed(0)

autoencoder = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 1, 3, padding=1)).half()
picture = (torch.rand(1, 1, 96, 96) * 9).half()
for _ in range(2):
    error = (autoencoder(picture) - picture) ** 2
    loss = error.sum()  # <- culprit
    autoencoder.zero_grad()
    loss.backward()
    print(loss.item())
