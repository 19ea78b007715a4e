"""A masked branch poisons the gradient: mask by `torch.where`.

`where` picks the finite branch going forward. Going back, both branches get a gradient, and the one
that was not picked adds 0 * inf = nan to the first element.
"""
# expects: masked-branch

import torch

x = torch.tensor([0.0, 0.0025, 0.5, 0.8, 1.0], requires_grad=True)

gamma = torch.where(x < 0.003, 12.9 * x, x**0.5)
loss = ((x - gamma) ** 2).mean()
loss.backward()

print(f"loss {loss.item():.4f}")
print("grad", x.grad)
