"""Unreachable pairs have distance inf in the data; only reachable ones are used."""

import torch

torch.manual_seed(0)
distance = torch.tensor([[0.0, 1.5, float("inf")], [1.5, 0.0, 2.0], [float("inf"), 2.0, 0.0]])
embedding = torch.randn(3, 2, requires_grad=True)
gap = torch.cdist(embedding, embedding, compute_mode="donot_use_mm_for_euclid_dist")
reachable = distance.isfinite() & (distance > 0)
loss = (gap[reachable] - distance[reachable]).square().mean()
loss.backward()
print(loss.item())
