# symptom: inf-loss
# phase: forward
# op: log
# cause: underflow
# fix: stable-op
# or fix: dtype (where fixes are tried: this one can be written here, the stable form is advice)
"""The likelihood of 400 pixels is multiplied out before the log."""

import torch

torch.manual_seed(0)

pixels = (torch.rand(5, 400) > 0.4).float()
logit = torch.zeros(400, requires_grad=True)


def likelihood(x, p):
    return (p**x * (1 - p) ** (1 - x)).prod(dim=-1)


loss = -torch.log(likelihood(pixels, torch.sigmoid(logit))).mean()  # <- culprit
loss.backward()
print(loss.item(), logit.grad[:3])
