# symptom: nan-loss
# phase: forward
# op: log
# cause: domain-error
# fix: clamp-domain
"""Several loss terms, one of them takes the log of a negative margin."""

import torch
from torch import nn

torch.manual_seed(0)
enc, dec = nn.Linear(6, 3), nn.Linear(3, 6)
x = torch.randn(10, 6)
z = enc(x)
recon = nn.functional.mse_loss(dec(z), x)
sparsity = z.abs().mean()
barrier = -torch.log(1.5 - z.pow(2).sum(1)).mean()  # <- culprit
loss = recon + 0.1 * sparsity + 0.01 * barrier
loss.backward()
print(loss.item())
