"""Cartesian to polar features: atan2 and radius at a robot standing on its goal."""
import torch
from torch import nn


def polar(xy):
    r = torch.sqrt(xy[:, 0] ** 2 + xy[:, 1] ** 2)  # -
    theta = torch.atan2(xy[:, 1], xy[:, 0])  # -
    # + at = (xy == 0).all(1)
    # + safe = torch.where(at[:, None], torch.ones_like(xy), xy)
    # + r = torch.where(at, 0.0, torch.sqrt(safe[:, 0] ** 2 + safe[:, 1] ** 2))
    # + theta = torch.where(at, 0.0, torch.atan2(safe[:, 1], safe[:, 0]))
    return torch.stack([r, theta], 1)


class Controller(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, pos, goal, steps=4):
        cost = 0.0
        for _ in range(steps):
            f = polar(goal - pos)
            u = self.net(f)
            pos = pos + 0.1 * u * (f[:, :1] > 0)
            cost = cost + f[:, 0].mean() + 0.01 * f[:, 1].abs().mean()
        return cost


torch.manual_seed(0)
net = Controller()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
goal = torch.randn(6, 2)
for it in range(3):
    pos = torch.zeros(6, 2)
    offset = torch.randn(6, 2)
    offset[1] = 0.0
    start = (goal - offset).requires_grad_()
    loss = net(start, goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())
