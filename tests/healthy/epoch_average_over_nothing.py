"""A metric of an empty epoch is nan, is printed, and is never trained on."""
# warnings: allowed, what is validated is nothing

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.randn(4, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        skipped = torch.tensor([])
        print("validation", skipped.mean().item())
