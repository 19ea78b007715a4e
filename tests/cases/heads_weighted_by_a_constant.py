# symptom: zero-grad
# phase: backward
# op: mul
# cause: dead-gradient
# fix: graph
"""Three heads on one body; the weight of the last one's loss was left at 0."""

import torch
from torch import nn

torch.manual_seed(0)
body = nn.Linear(6, 8)
heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(3))
optimizer = torch.optim.SGD([*body.parameters(), *heads.parameters()], lr=0.01)
weights = torch.tensor([1.0, 0.5, 0.0])
x, y = torch.randn(16, 6), torch.randn(16, 3)
for step in range(6):
    h = torch.tanh(body(x))
    losses = torch.stack([(one(h)[:, 0] - y[:, i]).square().mean() for i, one in enumerate(heads)])
    loss = (losses * weights).sum()  # <- culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
