# symptom: inf-loss
# phase: forward
# op: exp
# cause: overflow
# fix: clamp-domain
"""Poisson regression on raw features."""

import torch

torch.manual_seed(0)
exposure = torch.tensor([[1.0, 3000.0], [2.0, 120.0], [1.5, 90.0]])
counts = torch.tensor([4.0, 1.0, 0.0])
beta = torch.full((2,), 0.05, requires_grad=True)
log_rate = exposure @ beta
loss = torch.nn.functional.poisson_nll_loss(log_rate, counts)  # <- culprit
loss.backward()
print(loss.item(), beta.grad)
