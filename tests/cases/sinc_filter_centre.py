# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""SincNet filters: sin(x)/x with the middle set afterwards."""

import torch

cut = torch.tensor([0.1, 0.3], requires_grad=True)
n = torch.arange(-2.0, 3.0)
arg = 2 * torch.pi * cut[:, None] * n
filt = torch.sin(arg) / arg  # <- culprit
filt = torch.where(n == 0, torch.ones(()), filt)
loss = (filt.sum(1) - 2).pow(2).sum()
loss.backward()
print(loss.item(), cut.grad)
