# symptom: nan-grad
# phase: backward
# op: atanh
# cause: masked-branch
# fix: masked-branch
"""Squashed Gaussian policy: atanh of the saturated action, then a finite mask selects."""

import torch

mean = torch.zeros(3, requires_grad=True)
gain = torch.tensor([1.0, 0.5, 2.0], requires_grad=True)
action = torch.tensor([1.0, 0.2, -0.3]) * gain.clamp(max=1.0)
pre = torch.atanh(action)  # <- culprit
ok = torch.isfinite(pre)
logp = -0.5 * (pre - mean) ** 2
loss = -torch.masked_select(logp, ok).mean()
loss.backward()
print(loss.item(), gain.grad, mean.grad)
