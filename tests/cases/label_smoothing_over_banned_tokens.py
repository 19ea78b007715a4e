# symptom: inf-loss
# phase: forward
# op: masked_fill
# cause: inf-arithmetic
# fix: masked-branch
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
dec = nn.Linear(8, 12)
allowed = torch.ones(12, dtype=torch.bool)
allowed[[0, 5]] = False
h = torch.randn(6, 8)
tgt = torch.tensor([1, 2, 3, 4, 6, 7])
logits = dec(h).masked_fill(~allowed, float("-inf"))  # <- culprit
loss = F.cross_entropy(logits, tgt, label_smoothing=0.1)
loss.backward()
print(loss.item(), dec.weight.grad.isnan().sum().item())
