"""The safe form of a masked square root: both sides of the op are guarded."""

import torch

torch.manual_seed(0)
x = torch.tensor([0.0, -1.0, 0.25, 4.0], requires_grad=True)
positive = x > 0
safe = torch.where(positive, x, torch.ones_like(x))
root = torch.where(positive, safe.sqrt() + safe.log() / safe, torch.zeros_like(x))
loss = root.sum()
loss.backward()
print(loss.item(), x.grad)
