"""A segmentation edge loss sets its bad positions to 0 after the fact.

`a / b` is 0 / 0 wherever no target edge is near. Writing 0 over those positions makes the loss
finite; the gradient is nan everywhere, since neighbouring pixels share the pooling.
"""
# expects: masked-branch

import torch
import torch.nn.functional as F

torch.manual_seed(0)


def edges(mask):
    """How much each pixel differs from its 3 x 3 surroundings, (B, 1, H, W)."""
    return (mask - F.avg_pool2d(mask, 3, stride=1, padding=1, count_include_pad=False)).abs()


def nearby(values):
    return F.avg_pool2d(values, 5, stride=1, padding=2)


def edge_loss(predicted, target):
    a = nearby(edges(predicted) * edges(target))
    b = nearby(edges(target))
    loss = -torch.log(a / b)
    loss[b == 0] = 0.0
    return loss.mean()


target = torch.zeros(1, 1, 48, 48)
target[..., 20:28, 20:28] = 1.0
logits = torch.randn(1, 1, 48, 48, requires_grad=True)

loss = edge_loss(torch.sigmoid(logits), target)
loss.backward()

bad = logits.grad.isnan().float().mean().item()
print(f"loss {loss.item():.4f}")
print(f"nan in the gradient: {bad:.2%}")
