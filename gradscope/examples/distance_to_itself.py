"""Pairwise distances: a point is at distance 0 from itself, where the slope of `sqrt` is inf."""
# expects: singular-derivative

import torch

torch.manual_seed(0)

points = torch.randn(8, 3, requires_grad=True)

gaps = points[:, None] - points[None, :]
distances = gaps.square().sum(-1).sqrt()
loss = distances.mean()
loss.backward()

print(f"loss {loss.item():.4f}")
print("nan in the gradient:", points.grad.isnan().sum().item(), "of", points.grad.numel())
