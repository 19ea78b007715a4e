"""A matrix factored by two optimizers that take turns: the other factor's gradient is not used."""

import torch

torch.manual_seed(0)
U, V = torch.randn(10, 3, requires_grad=True), torch.randn(8, 3, requires_grad=True)
turns = torch.optim.SGD([U], lr=0.02), torch.optim.SGD([V], lr=0.02)
R = torch.randn(10, 8)
for i in range(20):
    loss = (U @ V.T - R).pow(2).mean()
    for optimizer in turns:
        optimizer.zero_grad()
    loss.backward()
    turns[i % 2].step()
