# symptom: nan-loss
# phase: forward
# op: cumprod
# cause: overflow
# fix: dtype
"""Off-policy trajectories: the product of importance ratios over a long episode."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((3,), 2.0))

    def log_ratio(self, obs, behaviour):
        return obs @ self.w - behaviour


obs = torch.rand(120, 3)
behaviour = torch.zeros(120)
rewards = torch.randn(120)
model = Linear()
ratio = model.log_ratio(obs, behaviour).exp()
weight = torch.cumprod(ratio, dim=0)  # <- culprit
loss = -(weight * rewards).sum() / weight.sum()
loss.backward()
print(loss.item())
