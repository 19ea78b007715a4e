# symptom: inf-loss
# phase: forward
# op: atanh
# cause: domain-error
# fix: clamp-domain
"""Behaviour cloning of squashed actions: replayed actions at the bound have no finite atanh."""

import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(0)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(3, 2)
        self.log_std = nn.Parameter(torch.zeros(2))

    def log_prob(self, obs, action):
        raw = torch.atanh(action)  # <- culprit
        base = Normal(self.mean(obs), self.log_std.exp(), validate_args=False)
        squash = torch.log(1 - action.pow(2) + 1e-6)
        return (base.log_prob(raw) - squash).sum(-1)


obs = torch.randn(5, 3)
actions = torch.tanh(torch.randn(5, 2))
actions[3, 1] = 1.0
actor = Actor()
loss = -actor.log_prob(obs, actions).mean()
loss.backward()
print(loss.item())
