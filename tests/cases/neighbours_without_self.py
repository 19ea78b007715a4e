# symptom: nan-grad
# phase: backward
# op: pow
# cause: masked-branch
# fix: masked-branch
# or fix: stable-op (where fixes are tried: the slope of a norm is 0 at 0, and nothing need be masked)
"""k nearest neighbours' distances without the point itself, by sort and slice."""

import torch

torch.manual_seed(0)
pts = torch.rand(5, 3, requires_grad=True)
d2 = ((pts[:, None] - pts[None]) ** 2).sum(-1)
d = d2**0.5  # <- culprit
near = d.sort(dim=1).values[:, 1:3]
loss = near.mean()
loss.backward()
print(loss.item(), pts.grad)
