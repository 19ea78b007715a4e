# symptom: nan-grad
# phase: backward
# op: log
# cause: masked-branch
# fix: masked-branch
"""vmap of a grad with where."""

import torch
from torch.func import grad, vmap


def f(x):
    return torch.where(x > 0, x * torch.log(x), torch.zeros_like(x)).sum()  # <- culprit


xs = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
g = vmap(grad(f))(xs)
new = xs - 0.1 * g
print(new)
