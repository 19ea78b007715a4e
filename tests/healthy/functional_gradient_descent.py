"""torch.func.grad and vmap, an update by hand."""

import torch
from torch.func import grad, vmap


def energy(point, centre):
    return (point - centre).square().sum().add(1e-9).sqrt()


centre = torch.zeros(2)
points = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
for _ in range(3):
    points = points - 0.1 * vmap(grad(energy), in_dims=(0, None))(points, centre)
print(points)
weight = torch.ones(2, requires_grad=True)
loss = energy(weight, centre)
loss.backward()
print(weight.grad)
