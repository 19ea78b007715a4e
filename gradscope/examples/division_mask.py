"""An inf is masked away going forward and comes back as nan.

`y` is [inf, 1] and the loss keeps only the 1, so it is finite. The gradient of the dropped element
is 0, the division multiplies it by 1 / 0, and x.grad is [nan, 1] where [0, 1] is right.
"""
# expects: masked-branch

import torch

x = torch.tensor([1.0, 1.0], requires_grad=True)
div = torch.tensor([0.0, 1.0])

y = x / div
loss = y[div != 0].sum()
loss.backward()

print("loss", loss.item())
print("grad", x.grad)
