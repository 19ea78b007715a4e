# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""A formula that a configuration gives as text."""

import torch

FORMULA = "torch.sqrt(u)"

weight = torch.tensor([1.0, 2.0], requires_grad=True)
for scale in (1.0, 0.0):
    loss = eval(FORMULA, {"torch": torch, "u": weight * scale}).sum()  # <- culprit
    loss.backward()
    print(loss.item(), weight.grad)
