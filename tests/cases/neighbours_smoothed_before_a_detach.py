# symptom: none-grad
# phase: forward
# op: detach
# cause: dead-gradient
# fix: graph
"""A graph network whose sparse neighbourhood averages the data before a layer that is cut off."""

import torch

torch.manual_seed(0)
adjacency = (torch.eye(5) + torch.eye(5).roll(1, 0)).div(2).to_sparse()
encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 4)
for _ in range(6):
    optimizer.zero_grad()
    smooth = torch.sparse.mm(adjacency, x)
    features = encoder(smooth).relu().detach()  # <- culprit
    head(features).square().mean().backward()
    optimizer.step()
