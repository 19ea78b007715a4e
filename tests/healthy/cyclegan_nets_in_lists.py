"""Two generators and two critics in containers of an object that is no module."""

import itertools

import torch
import torch.nn as nn

torch.manual_seed(0)


class Cycle:
    def __init__(self):
        self.nets = {"ab": nn.Linear(3, 3), "ba": nn.Linear(3, 3)}
        self.critics = [nn.Linear(3, 1), nn.Linear(3, 1)]
        self.og = torch.optim.Adam(
            itertools.chain(*(n.parameters() for n in self.nets.values())), 1e-3
        )
        self.od = torch.optim.Adam(itertools.chain(*(n.parameters() for n in self.critics)), 1e-3)

    def step(self, a, b):
        fa, fb = self.nets["ba"](b), self.nets["ab"](a)
        lg = (self.critics[0](fa) - 1).square().mean() + (self.critics[1](fb) - 1).square().mean()
        lg = lg + (self.nets["ba"](fb) - a).abs().mean() + (self.nets["ab"](fa) - b).abs().mean()
        self.og.zero_grad()
        lg.backward()
        self.og.step()
        self.od.zero_grad()
        ld = sum(
            (c(r) - 1).square().mean() + c(f.detach()).square().mean()
            for c, r, f in zip(self.critics, (a, b), (fa, fb))
        )
        ld.backward()
        self.od.step()
        return lg.item(), ld.item()


model = Cycle()
for _ in range(5):
    print(model.step(torch.randn(8, 3), torch.randn(8, 3) + 1))
