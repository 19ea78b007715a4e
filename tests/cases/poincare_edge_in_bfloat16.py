# symptom: nan-grad
# phase: backward
# op: clamp
# cause: rounded-bound
# fix: dtype
"""Tree embeddings in the Poincare ball, held in bfloat16, in which 1 + 1e-5 is 1."""

import torch
from torch import nn

torch.manual_seed(4)


class PoincareDistance(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, u, v):
        squared = (u - v).pow(2).sum(-1)
        scale = (1 - u.pow(2).sum(-1)) * (1 - v.pow(2).sum(-1))
        x = 1 + 2 * squared / scale
        return torch.acosh(x.clamp(min=1 + self.eps))  # <- culprit


table = nn.Embedding(7, 4)
nn.init.uniform_(table.weight, -0.01, 0.01)
table = table.bfloat16()
child = torch.arange(1, 7)
parent = (child - 1) // 2
distance = PoincareDistance()(table(parent), table(child))
loss = (distance.float() - 1).square().mean()
loss.backward()
print(loss.item(), table.weight.grad)
