# symptom: nan-grad
# phase: backward
# op: log
# cause: masked-branch
# fix: masked-branch
# or fix: stable-op (log(exp(x) m) is x + log(m), whose slope is 1)
"""Voxel occupancy: "nan_to_num makes the log safe"."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Density(nn.Module):
    def __init__(self):
        super().__init__()
        self.grid = nn.Parameter(torch.randn(4, 4, 4))
        self.register_buffer("inside", (torch.rand(4, 4, 4) > 0.3).float())

    def forward(self):
        return self.grid.exp() * self.inside


model = Density()
target = torch.rand(4, 4, 4)
log_density = torch.nan_to_num(torch.log(model()), neginf=-10.0)  # <- culprit
loss = (log_density - target.log()).abs().mean()
loss.backward()
print(loss.item(), model.grid.grad.isnan().sum().item())
