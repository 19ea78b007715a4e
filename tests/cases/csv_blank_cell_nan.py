# symptom: nan-loss
# phase: data
# op: addmm
# cause: bad-input
# fix: data
"""A blank cell in the CSV parses as NaN."""

import csv
import io

import torch
from torch.utils.data import DataLoader, TensorDataset

TEXT = """age,income,label
31,52.0,1
45,,0
22,18.5,0
60,75.2,1
"""


def parse(cell):
    return float(cell) if cell else float("nan")


rows = [[parse(c) for c in row] for row in list(csv.reader(io.StringIO(TEXT)))[1:]]
table = torch.tensor(rows)
x, y = table[:, :2], table[:, 2]
loader = DataLoader(TensorDataset(x, y), batch_size=2, shuffle=False)
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for _ in range(2):
    for xb, yb in loader:
        opt.zero_grad()
        logits = model(xb).squeeze(1)  # <- culprit
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, yb)
        loss.backward()
        opt.step()
        print(loss.item())
