# symptom: inf-loss
# phase: forward
# op: logsumexp
# cause: all-masked-softmax
# fix: guard-empty
# or fix: masked-branch (where fixes are tried: equal weights over the fill give a loss of 1e37)
"""Supervised contrastive loss; sample 5 is the only one of its class."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class SupCon(nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.temperature = temperature

    def forward(self, z, labels):
        z = F.normalize(z, dim=1)
        sim = z @ z.T / self.temperature
        eye = torch.eye(len(z), dtype=torch.bool)
        same = (labels[:, None] == labels) & ~eye
        positives = sim.masked_fill(~same, -torch.inf).logsumexp(1)  # <- culprit
        everything = sim.masked_fill(eye, -torch.inf).logsumexp(1)
        return (everything - positives).mean()


encoder = nn.Linear(8, 4)
labels = torch.tensor([0, 0, 1, 1, 1, 2])
loss = SupCon()(encoder(torch.randn(6, 8)), labels)
loss.backward()
print(loss.item())
