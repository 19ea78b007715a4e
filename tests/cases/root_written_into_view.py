# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""An in-place root of a part of a tensor: its node is hidden inside of CopySlices."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(5, 7)
x, target = torch.randn(9, 5), torch.rand(9, 7)
histogram = layer(x)
histogram = histogram * (histogram > 0)
histogram[:, 1:].sqrt_()  # <- culprit
loss = (histogram - target).square().mean()
loss.backward()
print(loss.item())
