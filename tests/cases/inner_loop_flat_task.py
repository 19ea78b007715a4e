# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""MAML-like inner loop: the variance of the support set is 0 in the third task."""

import torch

w = torch.tensor([1.0, -2.0], requires_grad=True)
tasks = [
    torch.tensor([[1.0, 2.0], [2.0, 0.5]]),
    torch.tensor([[0.3, 1.0], [1.0, 1.0]]),
    torch.tensor([[1.0, 1.0], [1.0, 1.0]]),
]


def spread(x, w):
    y = x @ w
    var = ((y - y.mean()) ** 2).mean()
    return var.sqrt()  # <- culprit


for task in tasks:
    loss = spread(task, w) + (w**2).sum()
    (g,) = torch.autograd.grad(loss, w)
    w = (w - 0.1 * g).detach().requires_grad_()
    print(loss.item(), w.tolist())
