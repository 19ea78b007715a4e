# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""Standardise tabular features; a column is constant."""

import torch
from torch import nn

torch.manual_seed(1)
X = torch.randn(64, 5)
X[:, 3] = 7.0
y = torch.randn(64)
mu, sd = X.mean(0), X.std(0)
X = (X - mu) / sd  # <- culprit
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(X).squeeze(-1), y)
    loss.backward()
    opt.step()
    print(epoch, loss.item())
