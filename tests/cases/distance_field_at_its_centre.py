# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: stable-op
"""R1-like penalty on the norm of the input gradient of an SDF network at its own centre."""

import torch
from torch import nn


class SDF(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(3))
        self.radius = nn.Parameter(torch.tensor(1.0))

    def forward(self, p):
        return ((p - self.centre) ** 2).sum(-1).sqrt() - self.radius  # <- culprit


sdf = SDF()
pts = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5]], requires_grad=True)
d = sdf(pts)
grad = torch.autograd.grad(d.sum(), pts, create_graph=True)[0]
eik = ((grad.nan_to_num().norm(dim=-1) - 1) ** 2).mean() + d.abs().mean()
eik.backward()
print(eik.item(), sdf.centre.grad)
