# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: epsilon
# or fix: stable-op (where fixes are tried: `normalize` has the epsilon inside)
"""Columns are renormalised after every step, and one of them has been pruned to zero."""

import torch
import torch.nn as nn

torch.manual_seed(0)

layer = nn.Linear(4, 6, bias=False)
prune = torch.ones(6, 1)
prune[2] = 0.0
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(16, 4)


@torch.no_grad()
def renormalise():
    layer.weight.mul_(prune)
    layer.weight.div_(layer.weight.norm(dim=1, keepdim=True))  # <- culprit


for step in range(3):
    loss = layer(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 1:
        renormalise()
    print(step, loss.item())
