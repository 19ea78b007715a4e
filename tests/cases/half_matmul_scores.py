# symptom: nan-loss
# phase: forward
# op: bmm
# cause: overflow
# fix: dtype
"""Attention in float16 scaled after the product instead of before."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class HalfAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.width = width

    def forward(self, x):
        scores = torch.bmm(self.q(x), self.k(x).transpose(1, 2))  # <- culprit
        return torch.softmax(scores / self.width**0.5, dim=-1) @ x


model = HalfAttention(32).half()
x = (torch.randn(2, 4, 32) * 400).half()
loss = model(x).float().mean()
loss.backward()
print(loss.item())
