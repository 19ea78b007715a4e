# symptom: nan-grad
# phase: backward
# op: log
# cause: masked-branch
# fix: masked-branch
"""A checkpointed symlog block."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class SymLog(nn.Module):
    def forward(self, x):
        return torch.where(x.abs() > 1, x.sign() * (1 + torch.log(x.abs())), x)  # <- culprit


torch.manual_seed(0)
first = nn.Linear(3, 3, bias=False)
block = SymLog()
x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
h = checkpoint(block, first(x), use_reentrant=False)
loss = h.pow(2).mean()
loss.backward()
print(loss.item(), first.weight.grad)
