# symptom: nan-loss
# phase: forward
# op: empty_like
# cause: uninitialized-memory
# fix: init
"""Piecewise tone curve: neither mask holds where x is exactly the knee."""

import torch

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


def tone(x, knee=0.5):
    out = torch.empty_like(x)  # <- culprit
    low, high = x < knee, x > knee
    out[low] = 2.0 * x[low]
    out[high] = 1.0 + (x[high] - knee).sqrt()
    return out


x = torch.tensor([0.1, 0.5, 0.9], requires_grad=True)
loss = (tone(x) - x).square().mean()
loss.backward()
print(loss.item(), x.grad)
