# symptom: nan-grad
# phase: backward
# op: exp
# cause: masked-branch
# fix: clamp-domain
"""Spike counts: the rate is exp(log-rate), capped at 1000 spikes per bin, after the exp."""

import torch

torch.manual_seed(0)

stimulus = torch.randn(50, 3)
stimulus[7] *= 60.0
counts = torch.poisson(torch.full((50,), 4.0))
kernel = torch.tensor([1.0, -2.0, 1.5], requires_grad=True)

optimizer = torch.optim.Adam([kernel], lr=1e-3)
for step in range(4):
    log_rate = stimulus @ kernel
    rate = torch.minimum(torch.exp(log_rate.abs()), torch.tensor(1000.0))  # <- culprit
    loss = (rate - counts * torch.log(rate)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
