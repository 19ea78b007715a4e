# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""RGB to HSV: saturation of a black pixel, hue of a grey one, both fixed afterwards."""

import torch

rgb = torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.5, 0.3]], requires_grad=True)
maxc, _ = rgb.max(-1)
minc, _ = rgb.min(-1)
delta = maxc - minc
s = delta / maxc  # <- culprit
s[maxc == 0] = 0
loss = (s - 0.3).abs().sum()
loss.backward()
print(loss.item(), rgb.grad)
