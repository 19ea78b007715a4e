"""Masked policy with torch.distributions: the mask is the lowest finite number, as advised."""

import torch
from torch.distributions import Categorical

torch.manual_seed(0)
logits = torch.randn(3, 4, requires_grad=True)
legal = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]).bool()
policy = Categorical(logits=logits.masked_fill(~legal, torch.finfo(torch.float32).min))
action = torch.tensor([0, 0, 3])
loss = -(policy.log_prob(action).mean() + 0.01 * policy.entropy().mean())
loss.backward()
print(loss.item())
