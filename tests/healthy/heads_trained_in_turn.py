"""Of three heads two are chosen in turn, and the third by data that have not come yet."""

import torch
from torch import nn

torch.manual_seed(0)
body = nn.Linear(6, 8)
heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(3))
optimizer = torch.optim.SGD([*body.parameters(), *heads.parameters()], lr=0.01)
for step in range(12):
    x, task = torch.randn(16, 6), torch.randint(0, 2, (16,))
    h = torch.tanh(body(x))
    out = torch.stack([head(h)[:, 0] for head in heads], 1)
    chosen = nn.functional.one_hot(task, 3).to(out.dtype)
    loss = (out * chosen).sum(1).sub(1.0).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
