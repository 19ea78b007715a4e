# symptom: nan-loss
# phase: forward
# op: log
# cause: underflow
# fix: epsilon
"""torch.distributions with a scale that underflows."""

import torch
from torch.distributions import Normal

log_scale = torch.tensor([0.0, -200.0], requires_grad=True)
mu = torch.zeros(2, requires_grad=True)
dist = Normal(mu, log_scale.exp(), validate_args=False)
loss = -dist.log_prob(torch.tensor([0.3, 0.1])).mean()  # <- culprit
loss.backward()
print(loss.item())
