"""ELU by hand with where: exp is large and finite."""

import torch
from torch import nn


class HandElu(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, torch.exp(x) - 1)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 3), HandElu(), nn.Linear(3, 1))
loss = net(torch.tensor([[40.0, -60.0], [1.0, 2.0]])).pow(2).mean()
loss.backward()
print(loss.item())
