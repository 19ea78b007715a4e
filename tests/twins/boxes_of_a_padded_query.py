import torch
import torch.nn as nn


def area(b):
    return (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])


def giou_loss(pred, gt):
    lt = torch.maximum(pred[:, :2], gt[:, :2])
    rb = torch.minimum(pred[:, 2:], gt[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, 0] * wh[:, 1]
    union = area(pred) + area(gt) - inter
    iou = inter / union  # -
    # + iou = inter / torch.where(union == 0, 1.0, union)
    outer = torch.cat([torch.minimum(pred[:, :2], gt[:, :2]), torch.maximum(pred[:, 2:], gt[:, 2:])], 1)
    hull = area(outer)
    return (1 - iou + (hull - union) / hull).mean()  # -
    # + return (1 - iou + (hull - union) / torch.where(hull == 0, 1.0, hull)).mean()


torch.manual_seed(0)
net = nn.Linear(3, 4, bias=False)
x = torch.randn(5, 3)
x[2] = 0  # a padded query
gt = torch.tensor([[0.0, 0, 1, 1], [0, 0, 2, 1], [0, 0, 0, 0], [1, 1, 2, 3], [0, 1, 1, 2]])
opt = torch.optim.SGD(net.parameters(), 0.01)
for _ in range(2):
    c = net(x)
    boxes = torch.cat([c[:, :2] - c[:, 2:].abs(), c[:, :2] + c[:, 2:].abs()], 1)
    loss = giou_loss(boxes, gt)
    opt.zero_grad()
    loss.backward()
    opt.step()
