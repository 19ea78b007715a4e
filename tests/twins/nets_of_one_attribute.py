"""A generator and a discriminator that both call their layers `net`, made in one line."""

import torch
from torch import nn

torch.manual_seed(0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 8))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())  # -
        # + self.net = nn.Sequential(nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x)


def d_loss(real, fake):
    return -(torch.log(real) + torch.log(1 - fake)).mean()  # -
    # + logsigmoid = nn.functional.logsigmoid
    # + return -(logsigmoid(real) + logsigmoid(-fake)).mean()


G, D = Generator(), Discriminator()
optimizer = torch.optim.SGD(D.parameters(), lr=1e-3)
for step in range(3):
    real = torch.randn(6, 8) * (1 + 200 * (step == 2))
    loss = d_loss(D(real), D(G(torch.randn(6, 4)).detach()))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
