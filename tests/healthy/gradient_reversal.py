"""Domain adaptation: the sign of the gradient is flipped on purpose."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.strength * grad_output, None


features, label, domain = nn.Linear(5, 8), nn.Linear(8, 2), nn.Linear(8, 2)
modules = nn.ModuleList([features, label, domain])
optimizer = torch.optim.SGD(modules.parameters(), lr=0.05)
for _ in range(3):
    h = torch.relu(features(torch.randn(10, 5)))
    loss = F.cross_entropy(label(h), torch.randint(0, 2, (10,)))
    loss = loss + F.cross_entropy(domain(Reverse.apply(h, 0.3)), torch.arange(10) % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
