# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: stable-op
"""A signed distance field with an eikonal term: its slope vanishes at the origin."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, p):
        return self.scale * (p * p).sum(-1) - 0.5


field = Field()
samples = torch.randn(16, 3)
samples[0] = 0.0
samples.requires_grad_()
distance = field(samples)
slope = torch.autograd.grad(distance.sum(), samples, create_graph=True)[0]
length = torch.sqrt((slope**2).sum(-1))  # <- culprit
loss = distance.abs().mean() + 0.1 * (length - 1).square().mean()
loss.backward()
print(loss.item(), field.scale.grad.item())
