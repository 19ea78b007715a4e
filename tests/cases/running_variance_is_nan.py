# symptom: nan-loss
# phase: data
# op: native_batch_norm
# cause: bad-parameter
# fix: data
"""Linear probing on frozen features whose batch norm has a nan running variance."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x))).mean((-2, -1))  # <- culprit


backbone = Backbone()
with torch.no_grad():
    backbone.bn.running_var[2] = float("nan")
backbone.eval().requires_grad_(False)
probe = nn.Linear(4, 3)
loss = nn.functional.cross_entropy(probe(backbone(torch.rand(5, 1, 8, 8))), torch.arange(5) % 3)
loss.backward()
print(loss.item())
