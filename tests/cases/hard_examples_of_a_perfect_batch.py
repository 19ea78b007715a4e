# symptom: nan-loss
# phase: forward
# op: mean
# cause: empty-reduction
# fix: guard-empty
"""Online hard example mining keeps the errors above 0.5; after a while there are none."""

import torch
import torch.nn as nn

torch.manual_seed(0)

model = nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
x = torch.randn(64, 3)
y = x @ torch.tensor([[1.0], [-0.5], [0.25]])

for _ in range(80):
    error = (model(x) - y).abs().squeeze(1)
    loss = error[error > 0.5].mean()  # <- culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
