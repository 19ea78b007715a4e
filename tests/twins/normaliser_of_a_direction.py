import math

import torch
from torch import nn


def log_norm(kappa):
    return torch.log(kappa / (4 * math.pi * torch.sinh(kappa)))  # -
    # + log_sinh = kappa + torch.log(-torch.expm1(-2 * kappa)) - math.log(2)
    # + return torch.log(kappa) - log_sinh - math.log(4 * math.pi)


class Sphere(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x, y):
        v = self.fc(x)
        return -(log_norm(v.norm(dim=1)) + (v * y).sum(1)).mean()


torch.manual_seed(0)
net = Sphere()
x = torch.randn(10, 5)
x[3] *= 150
loss = net(x, nn.functional.normalize(torch.randn(10, 3), dim=1))
loss.backward()
