"""Gradient penalty by torch's norm, differentiated twice, where one sample's gradient is zero."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
x = torch.randn(4, 2, requires_grad=True)
(slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
loss = ((slope.norm(2, dim=1) - 1) ** 2).mean()
loss.backward()
print(loss.item())
