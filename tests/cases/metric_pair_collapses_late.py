# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: stable-op
"""Contrastive training; at step 6 the loader pairs an image with itself."""

import torch
import torch.nn as nn

torch.manual_seed(0)


def pairs():
    pool = torch.randn(40, 10)
    for step in range(9):
        left = torch.randint(0, 40, (8,))
        right = (left + torch.randint(1, 39, (8,))) % 40
        if step == 6:
            right[3] = left[3]
        yield pool[left], pool[right], (torch.rand(8) > 0.5).float()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.ELU(), nn.Linear(16, 4))

    def forward(self, x):
        return self.layers(x)


def contrastive(a, b, same, margin=1.0):
    d = torch.sqrt(((a - b) ** 2).sum(1))  # <- culprit
    return (same * d.square() + (1 - same) * (margin - d).clamp(min=0).square()).mean()


encoder = Encoder()
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
for step, (left, right, same) in enumerate(pairs()):
    if step == 6:
        same[3] = 0.0
    loss = contrastive(encoder(left), encoder(right), same)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
