import math

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Linear(4, 6)
x, y = torch.randn(40, 4), torch.randn(40, 3)


def log_prob(y, mu, var):
    # + var = nn.functional.softplus(var)
    return -0.5 * (math.log(2 * math.pi) + torch.log(var) + (y - mu) ** 2 / var)


opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for i in range(6):
    mu, var = net(x).chunk(2, dim=-1)
    loss = -log_prob(y, mu, var).sum(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
