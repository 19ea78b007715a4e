"""Normalising flow: invertible 1x1 convolutions that start as any orthogonal matrix, reflections too."""
import torch
from torch import nn

torch.manual_seed(1)


class Inv1x1(nn.Module):
    def __init__(self, channels):
        super().__init__()
        w = torch.linalg.qr(torch.randn(channels, channels))[0]
        w[:, 0] *= -torch.det(w).sign()
        self.w = nn.Parameter(w)

    def forward(self, x):
        return x @ self.w, torch.log(torch.det(self.w))  # -
        # + return x @ self.w, torch.linalg.slogdet(self.w)[1]


class Flow(nn.Module):
    def __init__(self, channels=4, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(Inv1x1(channels) for _ in range(depth))
        self.scale = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        total, x = self.scale.sum(), x * self.scale.exp()
        for layer in self.layers:
            x, volume = layer(x)
            total = total + volume
        return x, total


flow = Flow()
z, volume = flow(2 * torch.randn(64, 4))
loss = (0.5 * z.pow(2).sum(1) - volume).mean()
loss.backward()
