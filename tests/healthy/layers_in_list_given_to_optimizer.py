"""Layers in a plain list, which the optimizer is given by hand."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = [nn.Linear(4, 4) for _ in range(3)]

    def forward(self, x):
        g = self.gate(x).softmax(-1)
        return sum(g[:, i : i + 1] * e(x) for i, e in enumerate(self.experts))


net = Experts()
extra = [p for e in net.experts for p in e.parameters()]
opt = torch.optim.SGD([*net.parameters(), *extra], lr=0.1)
for _ in range(5):
    x = torch.randn(8, 4)
    loss = (net(x) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
