"""Values near 60000 in float16 are within its range."""

import torch
import torch.nn as nn

torch.manual_seed(0)

scale = nn.Parameter(torch.tensor([20000.0, 58000.0], dtype=torch.float16))
x = torch.tensor([[1.0, -1.0], [0.5, 1.0]], dtype=torch.float16)
y = x * scale
loss = (y.float() / 60000).square().mean()
loss.backward()
print(loss.item(), scale.grad)
