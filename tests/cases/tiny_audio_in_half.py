# symptom: inf-loss
# phase: forward
# op: rsqrt
# cause: underflow
# fix: dtype
"""Quiet audio in float16: the square of 1e-4 is below the smallest half number."""

import torch
import torch.nn as nn

torch.manual_seed(0)

conv = nn.Conv1d(1, 2, 3, bias=False).half()
audio = (torch.randn(3, 1, 32) * 1e-4).half()
audio[0] *= 3000
h = conv(audio)
power = h.square().mean(-1, keepdim=True)
h = h * torch.rsqrt(power)  # <- culprit
loss = (h.float().abs().mean() - 0.5).square()
loss.backward()
print(loss.item())
