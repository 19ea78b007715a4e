# symptom: nan-loss
# phase: data
# op: div
# cause: bad-input
# fix: data
"""Weather table with a missing value; the loader turns empty cells into nan."""

import io

import torch
import torch.nn as nn

torch.manual_seed(0)

TABLE = """12.5,1013,0.71,14.0
13.1,1009,,14.6
11.8,1021,0.65,12.2
10.4,1002,0.88,11.0
"""


def load(text):
    cells = [line.strip().split(",") for line in io.StringIO(text)]
    rows = [[float(c) if c else float("nan") for c in row] for row in cells]
    return torch.tensor(rows)


table = load(TABLE)
features, target = table[:, :3], table[:, 3:]
scale = torch.tensor([10.0, 1000.0, 1.0])
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
loss = nn.functional.mse_loss(model(features / scale), target)  # <- culprit
loss.backward()
print(loss.item())
