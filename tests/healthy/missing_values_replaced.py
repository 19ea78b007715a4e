"""nan in the table becomes 0 with an indicator column, before the model sees it."""

import torch
import torch.nn as nn

torch.manual_seed(0)

table = torch.randn(12, 3)
table[[2, 7], [1, 0]] = float("nan")
missing = table.isnan()
x = torch.cat([torch.nan_to_num(table), missing.float()], dim=1)
mean = table.nanmean(0)
y = torch.randn(12, 1) + mean.sum()
model = nn.Linear(6, 1)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
for _ in range(3):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
