# symptom: inf-grad
# phase: backward
# op: polar
# cause: overflow
# fix: dtype
"""Complex numbers by modulus and phase: a large modulus times a large gradient leaves float32."""

import torch

modulus = torch.tensor([1.0, 1e30, 2.0])
phase = torch.tensor([0.1, 0.2, 0.3], requires_grad=True)
wave = torch.view_as_real(torch.polar(modulus, phase))  # <- culprit
error = wave - wave.detach()
loss = (error[:, 0] * 1e10).sum()
loss.backward()
print(loss.item())
print(phase.grad)
