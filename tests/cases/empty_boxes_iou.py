# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
import torch


def box_iou(a, b):
    width = (torch.min(a[:, 2], b[:, 2]) - torch.max(a[:, 0], b[:, 0])).clamp(min=0)
    height = (torch.min(a[:, 3], b[:, 3]) - torch.max(a[:, 1], b[:, 1])).clamp(min=0)
    overlap = width * height
    area = lambda box: (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])  # noqa: E731
    union = area(a) + area(b) - overlap
    return overlap / union  # <- culprit


proposals = torch.tensor([[1.0, 1, 4, 5], [2, 2, 2, 6], [0, 0, 3, 3]], requires_grad=True)
truth = torch.tensor([[1.0, 2, 4, 6], [3, 1, 3, 9], [1, 1, 4, 4]])
loss = (1 - box_iou(proposals, truth)).mean()
loss.backward()
print(loss.item(), proposals.grad[1])
