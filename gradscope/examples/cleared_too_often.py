"""Four small batches are to make one step, and the gradients are cleared before each of them.

Nothing raises: the step uses what is there, the gradients of the last batch, and three quarters of
the work are thrown away.
"""
# expects: lost-update

import torch
from torch import nn

torch.manual_seed(0)

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
used = 0
for step in range(16):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean() / 4
    loss.backward()
    if step % 4 == 3:
        optimizer.step()
        used += 1

print(f"{used} of 16 batches made a step")
