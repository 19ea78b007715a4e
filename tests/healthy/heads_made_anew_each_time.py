"""A probe for each layer: a new head, its gradient, and features that grow with the depth."""

import torch
from torch import nn

torch.manual_seed(0)


def probe(depth):
    head = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.0)
    features = torch.randn(16, 8) * 2.0**depth
    loss = head(features).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


losses = [probe(depth) for depth in range(20)]
