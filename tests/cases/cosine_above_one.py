# symptom: nan-loss
# phase: forward
# op: acos
# cause: domain-error
# fix: clamp-domain
"""Angle between bond vectors, normalised by hand: rounding makes the cosine 1.0000001."""

import torch
import torch.nn as nn


class AngleLoss(nn.Module):
    def forward(self, a, b):
        cosine = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
        return torch.arccos(cosine).mean()  # <- culprit


torch.manual_seed(0)
a = torch.rand(500, 3)
rotation = nn.Parameter(torch.eye(3))
loss = AngleLoss()(a @ rotation, 3.0 * a)
loss.backward()
print(loss.item())
