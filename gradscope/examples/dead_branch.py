"""A parameter gets no gradient at all: `.item()` takes its value out of the graph.

`scale` is given to the optimizer and never moves; its gradient stays None.
"""
# expects: dead-gradient

import torch
from torch import nn

torch.manual_seed(0)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.linear(x) * self.scale.item()


model = Scaled()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _step in range(5):
    loss = model(torch.randn(32, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("scale.grad", model.scale.grad)
