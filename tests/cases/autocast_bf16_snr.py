# symptom: inf-loss
# phase: forward
# op: log
# cause: log-zero
# fix: stable-op
"""Diffusion schedule under bfloat16 autocast: 1 - alpha rounds to 0 near t = 0."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Schedule(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(1, 1)
        nn.init.constant_(self.line.weight, -12.0)
        nn.init.constant_(self.line.bias, 6.5)

    def forward(self, t):
        alpha = torch.sigmoid(self.line(t))
        return torch.log(alpha) - torch.log(1 - alpha)  # <- culprit


t = torch.linspace(0, 1, 9)[:, None]
schedule = Schedule()
with torch.autocast("cpu", dtype=torch.bfloat16):
    log_snr = schedule(t)
loss = log_snr.float().diff(dim=0).square().mean()
loss.backward()
print(loss.item())
