# symptom: nan-grad
# phase: backward
# op: pow
# cause: singular-derivative
# fix: stable-op
"""torch.func.grad and a hand-written update."""

import torch
from torch.func import grad


def energy(params, x):
    r = (x - params["centre"]).pow(2).sum(-1).pow(0.5)  # <- culprit
    return (r - params["radius"]).pow(2).mean()


x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
params = {"centre": torch.zeros(2), "radius": torch.tensor(0.5)}
for _ in range(3):
    g = grad(energy)(params, x)
    params = {k: v - 0.1 * g[k] for k, v in params.items()}
print(params)
