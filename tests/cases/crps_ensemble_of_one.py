# symptom: nan-loss
# phase: forward
# op: std
# cause: empty-reduction
# fix: guard-empty
"""Ensemble weather forecast: the spread of an ensemble with a single member."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Ensemble(nn.Module):
    def __init__(self, members):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(5, 2) for _ in range(members))

    def forward(self, x):
        runs = torch.stack([head(x) for head in self.heads])
        return runs.mean(0), runs.std(0)  # <- culprit


def gaussian_nll(mean, spread, y):
    return torch.log(spread + 1e-3).mean() + ((y - mean) / (spread + 1e-3)).square().mean()


for members in (3, 1):
    model = Ensemble(members)
    loss = gaussian_nll(*model(torch.randn(6, 5)), torch.randn(6, 2))
    loss.backward()
    print(members, loss.item())
