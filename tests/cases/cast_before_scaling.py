# symptom: nan-loss
# phase: forward
# op: _to_copy
# cause: overflow
# fix: dtype
"""Counts of photons are cast to float16 before they are normalised."""

import torch
import torch.nn as nn

torch.manual_seed(0)

photons = torch.randint(0, 200_000, (6, 8))
x = photons.to(torch.float16)  # <- culprit
x = x / 200_000.0
net = nn.Linear(8, 1).half()
loss = net(x).float().square().mean()
loss.backward()
print(loss.item())
