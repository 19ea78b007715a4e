"""ReZero: at first every branch is multiplied by 0."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class ReZero(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
        self.alpha = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.alpha * self.f(x)


net = nn.Sequential(*[ReZero(8) for _ in range(4)], nn.Linear(8, 2))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
x, y = torch.randn(32, 8), torch.randint(0, 2, (32,))
for _ in range(6):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    print(loss.item())
