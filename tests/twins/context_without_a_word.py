import math

import torch
import torch.nn as nn


class CrossAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def split(self, t):
        b, n, d = t.shape
        return t.view(b, n, self.h, d // self.h).transpose(1, 2)

    def forward(self, x, ctx, ctx_mask):
        q = self.split(self.q(x))
        k, v = map(self.split, self.kv(ctx).chunk(2, -1))
        s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        s = s.masked_fill(~ctx_mask[:, None, None, :], float("-inf"))  # -
        # + s = s.masked_fill(~ctx_mask[:, None, None, :], -1e9)
        out = (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return x + self.o(out)


torch.manual_seed(0)
att = CrossAttention(8, 2)
head = nn.Linear(8, 3)
x, ctx = torch.randn(3, 4, 8), torch.randn(3, 5, 8)
keep = torch.tensor([[1, 1, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]).bool()
y = torch.randint(0, 3, (3, 4))
opt = torch.optim.AdamW([*att.parameters(), *head.parameters()], 1e-3)
for _ in range(2):
    loss = nn.functional.cross_entropy(head(att(x, ctx, keep)).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
