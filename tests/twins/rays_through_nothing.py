"""The expected depth along rays: of one that meets nothing all weights are 0."""

import torch

torch.manual_seed(0)
field = torch.nn.Linear(3, 2)
points = torch.randn(6, 8, 3)
points[1] = points[1].abs() * 9 * field.weight[0].detach().sign().neg()
steps = torch.linspace(2.0, 6.0, 8)
target = torch.rand(6) + 3


def render(density, value):
    alpha = 1 - torch.exp(-density * 0.5)
    clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha], -1), -1)[:, :-1]
    weights = alpha * clear
    depth = (weights * steps).sum(-1) / weights.sum(-1)  # -
    # + total = weights.sum(-1)
    # + depth = (weights * steps).sum(-1) / total.masked_fill(total == 0, 1)
    return depth, (weights * value).sum(-1)


density, value = field(points).unbind(-1)
depth, color = render(density.relu(), value)
loss = ((depth - target) ** 2).mean() + color.square().mean()
loss.backward()
