# symptom: inf-loss
# phase: forward
# op: cosh
# cause: overflow
# fix: clamp-domain
"""Joint-limit penalty cosh(k q), with one joint far outside of its limits."""

import torch
import torch.nn as nn


class JointLimits(nn.Module):
    def __init__(self, stiffness):
        super().__init__()
        self.stiffness = stiffness

    def forward(self, q):
        return (torch.cosh(self.stiffness * q) - 1).sum()  # <- culprit


q = nn.Parameter(torch.tensor([0.1, -0.4, 5.2, 0.0]))
loss = JointLimits(20.0)(q)
loss.backward()
print(loss.item(), q.grad)
