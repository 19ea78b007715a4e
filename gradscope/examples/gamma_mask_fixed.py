"""The repair of `gamma_mask`: each branch sees only its own elements.

Same loss, and the first element's gradient is 0. The result starts as zeros: allocated with
`empty_like`, an element that neither mask selects (a nan in `x`) would stay uninitialised memory.
"""
# expects: healthy

import torch

x = torch.tensor([0.0, 0.0025, 0.5, 0.8, 1.0], requires_grad=True)

dark = x < 0.003
bright = x >= 0.003
gamma = torch.zeros_like(x)
gamma[dark] = 12.9 * x[dark]
gamma[bright] = x[bright] ** 0.5
loss = ((x - gamma) ** 2).mean()
loss.backward()

print(f"loss {loss.item():.4f}")
print("grad", x.grad)
