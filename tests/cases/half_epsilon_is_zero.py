# symptom: nan-loss
# phase: forward
# op: add
# cause: rounded-bound
# fix: dtype
"""Cosine loss in float16. 1e-8 rounds to 0 there."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Cosine(nn.Module):
    def __init__(self, eps=1e-8):
        super().__init__()
        self.eps = eps

    def forward(self, a, b):
        dot = (a * b).sum(-1)
        return 1 - (dot / (a.norm(dim=-1) * b.norm(dim=-1) + self.eps)).mean()  # <- culprit


project = nn.Linear(6, 4, bias=False).half()
x = torch.randn(5, 6).half()
x[2] = 0
loss = Cosine()(project(x), torch.randn(5, 4).half())
loss.backward()
print(loss.item())
