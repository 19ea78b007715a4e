# symptom: nan-loss
# phase: forward
# op: log
# cause: log-zero
# fix: epsilon
# also: cause=underflow,zero-division,overflow
# also: op=div,log
# also: symptom=inf-loss,nan-grad
# also: fix=clamp-domain,stable-op
"""torch.distributions with a scale that underflows."""

import torch
from torch.distributions import Normal

log_scale = torch.tensor([0.0, -200.0], requires_grad=True)
mu = torch.zeros(2, requires_grad=True)
dist = Normal(mu, log_scale.exp(), validate_args=False)  # <- culprit
loss = -dist.log_prob(torch.tensor([0.3, 0.1])).mean()  # <- culprit
loss.backward()
print(loss.item())
