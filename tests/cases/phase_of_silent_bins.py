# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""Phase of an STFT: X / |X| with silent bins put to zero by multiplying the mask."""

import torch

torch.manual_seed(0)
wave = torch.randn(32)
wave[:16] = 0
wave.requires_grad_()
spec = torch.fft.rfft(wave.view(2, 16))
mag = spec.abs()
phase = spec / mag  # <- culprit
phase = torch.where(mag > 1e-8, phase, torch.zeros_like(phase))
loss = (phase.real - 0.5).square().mean()
loss.backward()
print(loss.item(), wave.grad.isnan().sum())
