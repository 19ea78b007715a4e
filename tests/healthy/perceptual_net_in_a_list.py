"""A frozen feature net hidden in a list."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class PerceptualLoss(nn.Module):
    """The feature net is kept in a list so that it is not saved with the model."""

    def __init__(self):
        super().__init__()
        self.feats = [nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU()).eval()]
        for p in self.feats[0].parameters():
            p.requires_grad_(False)

    def forward(self, a, b):
        return (self.feats[0](a) - self.feats[0](b)).abs().mean()


class AE(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(1, 1, 3, padding=1)
        self.crit = PerceptualLoss()

    def forward(self, x):
        return self.crit(self.net(x), x)


ae = AE()
opt = torch.optim.Adam(ae.parameters(), lr=1e-2)
for _ in range(5):
    x = torch.rand(2, 1, 8, 8)
    loss = ae(x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
