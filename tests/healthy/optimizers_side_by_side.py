"""Foreach and fused implementations of the usual optimizers."""

import torch
import torch.nn as nn

torch.manual_seed(0)

makers = [
    lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=True),
    lambda p: torch.optim.SGD(p, lr=0.01, fused=True),
    lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True, amsgrad=True),
    lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    lambda p: torch.optim.RMSprop(p, lr=1e-3, foreach=True, centered=True),
    lambda p: torch.optim.Adagrad(p, lr=1e-2, foreach=True),
    lambda p: torch.optim.NAdam(p, lr=1e-3),
    lambda p: torch.optim.Adadelta(p),
]
for make in makers:
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))
    optimizer = make(net.parameters())
    for _ in range(3):
        x = torch.randn(8, 5)
        loss = (net(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(type(optimizer).__name__, loss.item())
