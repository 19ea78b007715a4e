# symptom: inf-param
# phase: optimizer
# op: addcdiv
# cause: underflow
# fix: epsilon
"""RMSprop on float16 weights: the squared gradient and the epsilon both round to 0."""

import torch
import torch.nn as nn

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).half()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
x = torch.randn(32, 6).half()
y = torch.randn(32, 1).half() * 1e-3

for epoch in range(4):
    loss = (model(x) - y).square().mean() * 1e-3
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- culprit
    print(epoch, loss.item())
