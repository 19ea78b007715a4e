# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: stable-op
"""Entropic optimal transport between two point clouds."""

import torch

torch.manual_seed(0)


def sinkhorn(a, b, cost, eps=0.05, iters=20):
    K = torch.exp(-cost / eps)
    u, v = torch.ones_like(a), torch.ones_like(b)
    for _ in range(iters):
        u = a / (K @ v)  # <- culprit
        v = b / (K.t() @ u)
    return (u[:, None] * K * v[None]).mul(cost).sum()


x = torch.nn.Parameter(torch.randn(6, 2))
y = torch.randn(5, 2) + 8
a, b = torch.full((6,), 1 / 6), torch.full((5,), 0.2)
loss = sinkhorn(a, b, torch.cdist(x, y) ** 2)
loss.backward()
print(loss.item(), x.grad)
