"""A square leaves the range of float16, whose largest number is 65504.

The loss is inf. The gradient is finite, so training goes on and the loss curve has a hole.
"""
# expects: overflow

import torch

torch.manual_seed(0)

weight = torch.randn(64, 64, requires_grad=True)
batch = torch.randn(16, 64) * 20

hidden = (batch @ weight).half()
loss = hidden.square().mean()
loss.backward()

print("loss", loss.item())
print("gradient finite:", weight.grad.isfinite().all().item())
