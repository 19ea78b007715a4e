# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""The nearest hit of a ray: plane distances n.o / n.d, parallel planes give inf and lose the min."""

import torch

origin = torch.tensor([[0.0, 0.0, 1.0]], requires_grad=True)
ray = torch.tensor([[0.0, 0.0, -1.0]], requires_grad=True)
normals = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
t = -(origin @ normals.T + torch.tensor([0.0, 1.0])) / (ray @ normals.T)  # <- culprit
t = torch.where(t > 0, t, torch.full_like(t, 1e6))
near = t.min(dim=1).values
loss = near.mean()
loss.backward()
print(loss.item(), origin.grad, ray.grad)
