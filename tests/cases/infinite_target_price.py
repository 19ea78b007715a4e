# symptom: inf-loss
# phase: data
# op: mse_loss
# cause: bad-input
# fix: data
"""A sold-out item has the price inf in the export."""

import torch
import torch.nn as nn

torch.manual_seed(0)

prices = torch.tensor([3.5, 2.0, float("inf"), 8.25])
features = torch.randn(4, 3)
model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
prediction = model(features).squeeze(1)
loss = nn.MSELoss()(prediction, prices)  # <- culprit
loss.backward()
print(loss.item())
