"""A masked branch poisons the gradient: mask by multiplication.

The loss is finite (0.0105), and the gradient of `x` is nan at its first element: `x ** 0.5` has an
infinite slope at 0, the mask sends it a gradient of exactly 0, and 0 * inf is nan.
"""
# expects: masked-branch

import torch

x = torch.tensor([0.0, 0.0025, 0.5, 0.8, 1.0], requires_grad=True)

mask = (x < 0.003).float()
gamma = mask * 12.9 * x + (1 - mask) * (x**0.5)
loss = ((x - gamma) ** 2).mean()
loss.backward()

print(f"loss {loss.item():.4f}")
print("grad", x.grad)
