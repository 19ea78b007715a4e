# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""Losses from a table of lambdas."""

import torch

losses = {
    "l2": lambda a, b: ((a - b) ** 2).mean(),
    "rmse": lambda a, b: torch.sqrt(((a - b) ** 2).mean()),  # <- culprit
    "l1": lambda a, b: (a - b).abs().mean(),
}
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x.detach().clone()
total = sum(f(x, y) for f in losses.values())
total.backward()
print(total.item(), x.grad)
