"""Illegal moves are -inf before log_softmax; only legal ones are gathered."""

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(3):
    state = torch.randn(8, 6)
    legal = torch.rand(8, 5) > 0.4
    legal[:, 0] = True
    logits = net(state).masked_fill(~legal, float("-inf"))
    action = Categorical(logits=logits.detach()).sample()
    logp = logits.log_softmax(-1).gather(1, action[:, None]).squeeze(1)
    loss = -(logp * torch.randn(8)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
