"""One reading of a sensor is missing, and the table says nan there."""
# expects: bad-input

import torch
from torch import nn

torch.manual_seed(0)

readings = torch.randn(32, 4)
readings[11, 2] = float("nan")
target = torch.randn(32, 1)

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
loss = nn.functional.mse_loss(model(readings), target)
loss.backward()

print("loss", loss.item())
