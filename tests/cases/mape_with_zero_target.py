# symptom: inf-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""Mean absolute percentage error; demand is 0 on a holiday."""

import torch
import torch.nn as nn


class MAPE(nn.Module):
    def forward(self, pred, target):
        return ((pred - target).abs() / target.abs()).mean() * 100  # <- culprit


torch.manual_seed(0)
model = nn.Linear(3, 1)
x = torch.randn(6, 3)
target = torch.tensor([3.0, 5.0, 0.0, 2.0, 8.0, 1.0]).unsqueeze(1)
loss = MAPE()(model(x), target)
loss.backward()
print("loss", loss.item())
