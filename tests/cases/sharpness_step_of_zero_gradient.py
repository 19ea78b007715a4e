# symptom: nan-loss
# phase: forward
# op: reciprocal
# cause: zero-division
# fix: epsilon
"""Sharpness-aware minimisation; every hinge is satisfied on the second batch."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Linear(2, 1)
base = torch.optim.SGD(net.parameters(), lr=0.5)


def hinge(x, y):
    return torch.relu(1 - y * net(x).squeeze(1)).mean()


@torch.no_grad()
def ascend(rho=0.05):
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    moves = []
    for p in net.parameters():
        e = p.grad * (rho / norm)  # <- culprit
        p.add_(e)
        moves.append(e)
    return moves


for i in range(5):
    y = torch.tensor([1.0, -1.0, 1.0, -1.0])
    x = torch.stack([5 * y, torch.randn(4)], 1)
    base.zero_grad()
    hinge(x, y).backward()
    moves = ascend()
    base.zero_grad()
    loss = hinge(x, y)
    loss.backward()
    with torch.no_grad():
        for p, e in zip(net.parameters(), moves):
            p.sub_(e)
    base.step()
    print(i, loss.item())
