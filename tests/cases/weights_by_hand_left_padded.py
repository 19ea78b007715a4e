# symptom: nan-loss
# phase: forward
# op: div
# cause: all-masked-softmax
# fix: masked-branch
"""A decoder that writes its softmax out; left padding leaves the first queries no key."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x, mask):
        w = self.q(x) @ self.k(x).transpose(-1, -2) / x.size(-1) ** 0.5
        w = w + mask
        w = torch.exp(w) / torch.exp(w).sum(-1, keepdim=True)  # <- culprit
        return w @ self.v(x)


embedding, attention, head = nn.Embedding(20, 8), Attention(8), nn.Linear(8, 20)
causal = torch.full((6, 6), float("-inf")).triu(1)
for step in range(3):
    ids, pad = torch.randint(0, 20, (2, 7)), torch.zeros(2, 6, dtype=torch.bool)
    pad[0, :2] = step == 2
    mask = causal + torch.zeros(2, 1, 6).masked_fill(pad[:, None], float("-inf"))
    logits = head(attention(embedding(ids[:, :-1]), mask))
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    print(loss.item())
