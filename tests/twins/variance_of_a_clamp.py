import torch
from torch import nn

torch.manual_seed(0)


def nll(mu, var, y):
    return (0.5 * torch.log(var) + 0.5 * (y - mu) ** 2 / var).mean()


net = nn.Linear(2, 2)
x = torch.randn(12, 2)
mu, raw = net(x).unbind(1)
var = raw.clamp(min=0)  # -
# + var = nn.functional.softplus(raw)
loss = nll(mu, var, torch.randn(12))
loss.backward()
