# symptom: wrong-grad
# phase: backward
# op: index_put
# cause: bad-custom-backward
# fix: backward-rewrite
"""A rectifier whose backward writes 1 where its forward is cut off."""

import torch


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[x <= 0] = 1  # <- culprit
        return grad_input


torch.manual_seed(0)
w = torch.randn(6, 6, requires_grad=True)
loss = (Gate.apply(torch.randn(8, 6) @ w) - 1).square().mean()
loss.backward()
