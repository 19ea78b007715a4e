# symptom: nan-grad
# phase: backward
# op: log
# cause: log-zero
# fix: epsilon
# or fix: stable-op (an entropy of log_softmax needs no backward of its own)
"""Entropy as a custom Function: its forward knows 0 log 0 = 0, its backward does not."""

import torch


class Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p):
        ctx.save_for_backward(p)
        return -torch.xlogy(p, p).sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return -(torch.log(p) + 1) * grad_output[..., None]  # <- culprit


logits = torch.tensor([[200.0, 0.0, 0.0], [1.0, 2.0, 3.0]], requires_grad=True)
loss = Entropy.apply(logits.softmax(-1)).mean()
loss.backward()
print(loss.item(), logits.grad)
