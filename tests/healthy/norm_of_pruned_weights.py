"""Norms at zero: torch's own norm has the subgradient 0 there, cdist and normalize too."""

import torch
from torch.nn import functional as F

weight = torch.zeros(3, 2)
weight[1] = torch.tensor([3.0, 4.0])
weight.requires_grad_()
norms = weight.norm(dim=1).sum() + torch.linalg.vector_norm(weight, dim=1).sum()
gaps = torch.cdist(weight, weight).sum() + F.pairwise_distance(weight, weight, eps=0.0).sum()
loss = norms + gaps + weight.std(1).sum()
loss.backward()
print(loss.item(), weight.grad)
