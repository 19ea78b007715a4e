"""The best loss so far starts at inf, and so does that of a plateau schedule."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
best = torch.tensor(float("inf"))
for _ in range(5):
    loss = net(torch.randn(8, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = torch.minimum(best, loss.detach())
    schedule.step(loss.item())
print(best.item())
