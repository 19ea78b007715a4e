"""A meta-learner's inner step, bounded by its norm, on a task that is solved already."""

import torch

torch.manual_seed(0)
weight = torch.randn(6, requires_grad=True)
x = torch.randn(4, 6)
solved = (x @ weight).detach()

inner = ((x @ weight - solved) ** 2).mean()
(gradient,) = torch.autograd.grad(inner, weight, create_graph=True)
norm = torch.sqrt((gradient**2).sum())  # -
# + norm = torch.sqrt((gradient**2).sum() + 1e-12)
scale = torch.clamp(1.0 / norm, max=1.0)
fast = weight - 0.1 * gradient * scale
loss = (x @ fast - 1.0).square().mean()
loss.backward()
