# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""Saliency maps scaled to [0, 1] per image; the third map is flat."""

import torch


def rescale(maps):
    flat = maps.flatten(1)
    low = flat.min(1, keepdim=True).values
    high = flat.max(1, keepdim=True).values
    return ((flat - low) / (high - low)).view_as(maps)  # <- culprit


torch.manual_seed(0)
features = torch.rand(3, 4, 5, 5)
features[2] = 0.0
weights = torch.rand(4, requires_grad=True)
saliency = rescale(torch.einsum("bchw,c->bhw", features, weights))
loss = (saliency - torch.rand(3, 5, 5)).abs().mean()
loss.backward()
print(loss.item(), weights.grad)
