"""Each forward makes a new parameter of the normalised one."""

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class CosineHead(nn.Module):
    def __init__(self, d, n, s=10.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, d))
        self.s = s

    def directions(self):
        self.weight = nn.Parameter(F.normalize(self.weight, dim=1))  # -
        # + return F.normalize(self.weight, dim=1)
        return self.weight  # -

    def forward(self, x):
        return self.s * F.linear(F.normalize(x, dim=1), self.directions())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        self.head = CosineHead(8, 3)

    def forward(self, x):
        return self.head(self.body(x))


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for i in range(6):
    x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
