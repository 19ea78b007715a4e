# symptom: nan-loss
# phase: forward
# op: full_like
# cause: inf-arithmetic
# fix: masked-branch
"""Missing targets are marked with NaN, in a tensor of the shape of one that holds -inf already."""

import torch

scores = torch.tensor([2.0, 0.0, 1.0], requires_grad=True)
reference = torch.log(scores.detach())  # -inf at [1], only ever asked for its shape
target = torch.full_like(reference, float("nan"))  # <- culprit
target[0] = 1.0
loss = (scores - target).square().mean()
loss.backward()
print(loss.item())
print(scores.grad)
