"""The best loss so far starts at inf, and the lowest distance of each point too."""

import torch
import torch.nn as nn

torch.manual_seed(0)

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = torch.tensor(float("inf"))
closest = torch.full((10,), float("inf"))
for _ in range(4):
    x = torch.randn(10, 3)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = torch.minimum(best, loss.detach())
    closest = torch.minimum(closest, x.norm(dim=1))
    print(loss.item(), best.item(), closest.mean().item())
