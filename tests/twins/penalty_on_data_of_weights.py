"""The weights are penalised by their `.data`, which no gradient reaches."""

import torch
from torch import nn

torch.manual_seed(4)
net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)


def penalty(model):
    return sum(one.data.pow(2).sum() for one in model.parameters())  # -
    # + return sum(one.pow(2).sum() for one in model.parameters())


for step in range(8):
    x = torch.randn(32, 5)
    error = (net(x) - x.prod(1, keepdim=True)).square().mean()
    loss = error + 1e-2 * penalty(net)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
