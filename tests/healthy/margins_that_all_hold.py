"""A linear SVM on balanced classes: the gradient of its offset is a sum that comes to 0 at first, and
in the end every margin holds."""

import torch

torch.manual_seed(0)
x = torch.cat([torch.randn(50, 2) + 4, torch.randn(50, 2) - 4])
y = torch.cat([torch.ones(50), -torch.ones(50)])
w, b = torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([w, b], lr=0.1)
for step in range(60):
    loss = torch.relu(1 - y * (x @ w + b)).mean() + 1e-3 * w.pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
