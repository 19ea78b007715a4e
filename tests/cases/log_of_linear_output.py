# symptom: nan-loss
# phase: forward
# op: log
# cause: domain-error
# fix: clamp-domain
"""Squared logarithmic error on predictions that nothing keeps positive."""

import torch
import torch.nn as nn

torch.manual_seed(0)


def rmsle(pred, y):
    return (torch.log(1 + pred) - torch.log1p(y)).pow(2).mean().sqrt()  # <- culprit


model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.rand(64, 4), torch.rand(64, 1)
for epoch in range(6):
    if epoch == 4:
        x[20] = -30.0  # a row of missing values, coded as -30
    loss = rmsle(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
