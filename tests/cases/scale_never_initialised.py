# symptom: nan-loss
# phase: forward
# op: empty
# cause: uninitialized-memory
# fix: init
"""A layer that allocates its parameter and forgets reset_parameters()."""

import torch
import torch.nn as nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))  # <- culprit

    def forward(self, x):
        return x * self.weight


model = nn.Sequential(nn.Linear(4, 6), Scale(6), nn.GELU(), nn.Linear(6, 1))
loss = model(torch.randn(8, 4)).square().mean()
loss.backward()
print(loss.item())
