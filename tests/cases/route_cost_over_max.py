# symptom: nan-loss
# phase: forward
# op: div
# cause: inf-arithmetic
# fix: masked-branch
"""Soft shortest hop: missing roads cost inf, and costs are scaled by the largest one."""

import torch

torch.manual_seed(0)

roads = torch.tensor([[0, 1, 1], [1, 0, 0], [1, 0, 0]]).bool()
length = torch.rand(3, 3, requires_grad=True)

cost = length.exp().masked_fill(~roads, float("inf"))
relative = cost / cost.amax(dim=1, keepdim=True)  # <- culprit
hop = torch.softmax(-relative, dim=1)
loss = (hop * length).sum()
loss.backward()
print(loss.item(), length.grad)
