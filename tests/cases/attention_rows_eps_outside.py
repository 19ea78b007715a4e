# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""Linear attention with relu features. The epsilon stands behind the division."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class LinearAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = F.relu(q), F.relu(k)
        scores = q @ k.transpose(1, 2)
        weights = scores / scores.sum(-1, keepdim=True) + 1e-8  # <- culprit
        return weights @ v


x = torch.randn(2, 5, 8)
x[1, 4] = 0.0
layer = LinearAttention(8)
loss = layer(x).pow(2).mean()
loss.backward()
print(loss.item())
