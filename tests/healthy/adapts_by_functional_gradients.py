"""MAML by torch.func: each task goes some steps along its own gradient, and the loss is of what that
gives, differentiated through."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(3)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))


def error(params, x, y):
    return (functional_call(net, params, (x,)) - y).square().mean()


def adapted(params, x, y):
    for _ in range(2):
        slopes = grad(error)(params, x, y)
        params = {name: value - 0.1 * slopes[name] for name, value in params.items()}
    return params


def after_adapting(params, x, y):
    return error(adapted(params, x[:8], y[:8]), x[8:], y[8:])


params = {name: one.detach().clone().requires_grad_() for name, one in net.named_parameters()}
optimizer = torch.optim.Adam(params.values(), lr=1e-2)
for step in range(60):
    x = torch.rand(16, 16, 1) * 4 - 2
    y = torch.sin(x + torch.rand(16, 1, 1))
    loss = vmap(after_adapting, in_dims=(None, 0, 0))(params, x, y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
