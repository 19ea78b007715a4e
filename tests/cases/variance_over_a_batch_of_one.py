# symptom: nan-loss
# phase: forward
# op: var
# cause: empty-reduction
# fix: guard-empty
"""VICReg variance term; the last batch of the epoch holds one pair."""

import torch
import torch.nn as nn

torch.manual_seed(0)


def variance_term(z, floor=1.0):
    std = torch.sqrt(z.var(dim=0) + 1e-4)  # <- culprit
    return torch.relu(floor - std).mean()


projector = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))
optimizer = torch.optim.SGD(projector.parameters(), lr=0.1)
data = torch.randn(9, 5)
for view in data.split(4):
    a, b = projector(view), projector(view + 0.1 * torch.randn_like(view))
    loss = (a - b).square().mean() + variance_term(a) + variance_term(b)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(len(view), loss.item())
