# symptom: nan-grad
# phase: backward
# op: acosh
# cause: singular-derivative
# fix: clamp-domain
"""Hyperbolic word embeddings: distance in the Poincare ball."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Poincare(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.table = nn.Embedding(words, dim)
        nn.init.uniform_(self.table.weight, -0.1, 0.1)

    def forward(self, u, v):
        u, v = self.table(u), self.table(v)
        num = (u - v).pow(2).sum(-1)
        den = (1 - u.pow(2).sum(-1)) * (1 - v.pow(2).sum(-1))
        return torch.acosh(1 + 2 * num / den)  # <- culprit


model = Poincare(20, 3)
first = torch.tensor([1, 4, 7, 9])
second = torch.tensor([2, 4, 8, 3])
loss = model(first, second).mean()
loss.backward()
print(loss.item(), model.table.weight.grad.isnan().any(1).nonzero().flatten().tolist())
