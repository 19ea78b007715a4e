# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""CIoU over anchors; boxes of height 0 are weighted 0 in the reduction."""

import math

import torch


def ciou_v(pred, target):
    pw, ph = pred[:, 2], pred[:, 3]
    tw, th = target[:, 2], target[:, 3]
    return 4 / math.pi**2 * (torch.atan(tw / th) - torch.atan(pw / ph)) ** 2  # <- culprit


pred = torch.tensor([[0.1, 0.2, 0.0, 0.0], [0.4, 0.4, 0.3, 0.6]], requires_grad=True)
target = torch.tensor([[0.1, 0.2, 0.3, 0.3], [0.4, 0.4, 0.3, 0.3]])
weight = torch.tensor([0.0, 1.0])
v = ciou_v(pred, target)
loss = torch.where(weight > 0, v * weight, torch.zeros_like(v)).sum() / weight.sum()
loss.backward()
print(loss.item(), pred.grad)
