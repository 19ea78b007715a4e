# symptom: nan-grad
# phase: backward
# op: reciprocal
# cause: masked-branch
# fix: masked-branch
"""Mesh smoothing: edge lengths to the power -1 as weights, a collapsed edge."""

import torch

verts = torch.tensor([[0.0, 0, 0], [0.0, 0, 0], [1.0, 0, 0]], requires_grad=True)
edges = torch.tensor([[0, 1], [1, 2]])
v0, v1 = verts[edges].unbind(1)
length = (v0 - v1).norm(dim=1, p=2)
w = 1 / length  # <- culprit
w[length < 1e-9] = 0.0
loss = (w * ((v0 - v1) ** 2).sum(1)).sum()
loss.backward()
print(loss.item(), verts.grad)
