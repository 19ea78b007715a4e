"""The repair of `division_mask`: filter the zeros out before dividing."""
# expects: healthy

import torch

x = torch.tensor([1.0, 1.0], requires_grad=True)
div = torch.tensor([0.0, 1.0])

keep = div != 0
y = x[keep] / div[keep]
loss = y.sum()
loss.backward()

print("loss", loss.item())
print("grad", x.grad)
