# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""Per-token normalisation before packing: padded steps are zero / zero and get packed away."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

torch.manual_seed(0)
proj = nn.Linear(2, 3, bias=False)
x = torch.randn(2, 3, 2)
x[1, 2:] = 0
h = proj(x)
h = h / h.abs().sum(-1, keepdim=True)  # <- culprit
packed = pack_padded_sequence(h, [3, 2], batch_first=True)
loss = packed.data.pow(2).mean()
loss.backward()
print(loss.item(), proj.weight.grad)
