# symptom: inf-loss
# phase: forward
# op: log1p
# cause: log-zero
# fix: stable-op
# or fix: clamp-domain (where fixes are tried: it can be written here, the stable form is advice)
"""Discrete-time survival: log(1 - hazard) where the hazard reaches exactly 1."""

import torch
import torch.nn as nn


class Hazard(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(3.0))

    def forward(self, risk):
        return torch.sigmoid(self.slope * risk)


risk = torch.tensor([-1.0, 0.3, 1.2, 9.0])
event = torch.tensor([0.0, 1.0, 0.0, 0.0])
model = Hazard()
hazard = model(risk)
log_alive = torch.log1p(-hazard)  # <- culprit
loss = -torch.where(event == 1, hazard.log(), log_alive).mean()
loss.backward()
print(loss.item(), model.slope.grad.item())
