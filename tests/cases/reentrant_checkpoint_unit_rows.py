# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""Two where's in a row, reentrant checkpoint, bf16 autocast."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
lin = nn.Linear(2, 2, bias=False)
x = torch.tensor([[0.0, 0.0], [1.0, 2.0]], requires_grad=True)


def block(h):
    n = h.float().square().sum(-1, keepdim=True)
    u = h / n  # <- culprit
    return torch.where(n > 0, u, h)


with torch.autocast("cpu", dtype=torch.bfloat16):
    out = checkpoint(block, lin(x), use_reentrant=True)
    loss = out.float().square().mean()
loss.backward()
print(loss.item(), lin.weight.grad)
