# symptom: nan-grad
# phase: backward
# op: log
# cause: masked-branch
# fix: masked-branch
"""log transmittance after the surface is cut by slicing per ray in a comprehension."""

import torch

alpha = torch.tensor([[0.1, 0.3, 1.0], [0.2, 0.1, 0.4]], requires_grad=True)
stop = [2, 3]
logt = torch.log(1 - alpha)  # <- culprit
loss = -sum(row[:n].sum() for row, n in zip(logt, stop))
loss.backward()
print(loss.item(), alpha.grad)
