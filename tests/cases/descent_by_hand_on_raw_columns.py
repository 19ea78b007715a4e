# symptom: diverging-loss
# phase: optimizer
# op: sub
# cause: diverging-training
# fix: lower-lr
"""Linear regression with an update by hand, on columns that nobody has scaled."""

import torch

torch.manual_seed(0)
x = torch.randn(64, 3) * torch.tensor([1.0, 10.0, 300.0])
y = x @ torch.tensor([2.0, -1.0, 0.5])
w = torch.zeros(3, requires_grad=True)
learning_rate = 1e-3

for epoch in range(100):
    loss = ((x @ w - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= learning_rate * w.grad  # <- culprit
        w.grad.zero_()
