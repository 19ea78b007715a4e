# symptom: inf-loss
# phase: forward
# op: log
# cause: log-zero
# fix: stable-op
# or fix: epsilon (where fixes are tried: this one can be written here, the stable form is advice)
"""Focal loss with a clamp that float32 cannot represent: 1 - 1e-8 is 1."""

import torch

torch.manual_seed(0)


def focal(logits, y, gamma=2.0):
    p = torch.sigmoid(logits).clamp(1e-8, 1 - 1e-8)
    pos = (1 - p) ** gamma * torch.log(p)
    neg = p**gamma * torch.log(1 - p)  # <- culprit
    return -torch.where(y > 0, pos, neg).mean()


logits = torch.tensor([2.0, -1.0, 20.0, 0.5], requires_grad=True)
y = torch.tensor([1.0, 0.0, 0.0, 1.0])
loss = focal(logits, y)
loss.backward()
print(loss.item(), logits.grad)
