# symptom: nan-loss
# phase: forward
# op: empty
# cause: uninitialized-memory
# fix: init
"""torch.Tensor(n) is uninitialised memory, not n zeros."""

import torch

torch.manual_seed(0)
bias = torch.nn.Parameter(torch.Tensor(5))  # <- culprit
x = torch.randn(3, 5)
loss = (x + bias).pow(2).mean()
loss.backward()
print(loss.item())
