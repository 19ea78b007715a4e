# symptom: nan-grad
# phase: backward
# op: log
# cause: masked-branch
# fix: masked-branch
"""masked_scatter over computed logs, and amin afterwards."""

import torch

odds = torch.tensor([0.0, 0.4, 2.0], requires_grad=True)
lo = torch.log(odds)  # <- culprit
out = lo.masked_scatter(odds < 0.1, torch.tensor([-3.0]))
loss = out.sum()
loss.backward()
print(loss.item(), odds.grad)
