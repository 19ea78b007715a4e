# symptom: inf-loss
# phase: forward
# op: mul
# cause: overflow
# fix: dtype
"""A gain that float32 holds and its product with a spectrum does not; the spectrum is complex."""

import torch

spectrum = torch.tensor([1.0 + 1.0j, 3e30 - 1.0j, 2.0j], requires_grad=True)
gain = torch.tensor([1e2, 1e12, 1.0])
boosted = spectrum * gain  # <- culprit
loss = torch.view_as_real(boosted).sum()
loss.backward()
print(loss.item())
print(spectrum.grad)
