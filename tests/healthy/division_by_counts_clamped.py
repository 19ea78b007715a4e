"""A segment mean whose empty segments divide by 1."""

import torch

torch.manual_seed(0)
features = torch.randn(6, 3, requires_grad=True)
segment = torch.tensor([0, 0, 2, 2, 2, 3])
total = torch.zeros(5, 3).index_add(0, segment, features)
count = torch.bincount(segment, minlength=5).clamp(min=1)
loss = (total / count[:, None]).square().mean()
loss.backward()
print(loss.item())
