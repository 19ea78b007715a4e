"""Memory is allocated with empty and every element is written before it is read."""

import torch

torch.manual_seed(0)
w = torch.randn(4, requires_grad=True)
x = torch.randn(5, 4)
out = torch.empty(5, 4)
for column in range(4):
    out[:, column] = x[:, column] * w[column]
loss = out.square().mean()
loss.backward()
print(loss.item())
