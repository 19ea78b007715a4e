"""The way to a point by LBFGS: its line search tries steps that are far too long, and takes none of
them."""

import torch

point = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
optimizer = torch.optim.LBFGS([point], lr=0.5, max_iter=3, line_search_fn="strong_wolfe")


def distance():
    optimizer.zero_grad()
    loss = point.square().sum().sqrt()
    loss.backward()
    return loss


for step in range(3):
    print(step, optimizer.step(distance).item())
