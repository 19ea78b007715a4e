import math

import torch
import torch.nn as nn

torch.manual_seed(61)

MAX_TAGS = 5


def wh(box):
    return box[..., 2] - box[..., 0], box[..., 3] - box[..., 1]


def iou(pred, true):
    lt = torch.maximum(pred[..., :2], true[..., :2])
    rb = torch.minimum(pred[..., 2:], true[..., 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    (pw, ph), (tw, th) = wh(pred), wh(true)
    return inter / (pw * ph + tw * th - inter)


def centre_penalty(pred, true):
    lt = torch.minimum(pred[..., :2], true[..., :2])
    rb = torch.maximum(pred[..., 2:], true[..., 2:])
    diagonal = (rb - lt).pow(2).sum(-1)
    shift = (pred[..., :2] + pred[..., 2:] - true[..., :2] - true[..., 2:]) / 2
    return shift.pow(2).sum(-1) / diagonal


def aspect_penalty(pred, true):
    (pw, ph), (tw, th) = wh(pred), wh(true)
    v = (torch.atan(tw / th) - torch.atan(pw / ph)).pow(2)
    return 4 / math.pi ** 2 * v


class CompleteIoULoss(nn.Module):
    def forward(self, pred, true, mask):
        # + pred, true = pred[mask > 0], true[mask > 0]
        overlap = iou(pred, true)
        v = aspect_penalty(pred, true)
        with torch.no_grad():
            alpha = v / (1 - overlap + v + 1e-7)
        loss = 1 - overlap + centre_penalty(pred, true) + alpha * v
        return (loss * mask).sum() / mask.sum()  # -
        # + return loss.mean()


class TagLocator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))

    def forward(self, query, mask):
        raw = self.net(query)
        centre, size = torch.sigmoid(raw[..., :2]), 0.05 + 0.25 * torch.sigmoid(raw[..., 2:])
        box = torch.cat([centre - size / 2, centre + size / 2], dim=-1)
        return box * mask.unsqueeze(-1)


def shelf_photos(n):
    count = torch.randint(1, MAX_TAGS + 1, (n,))
    mask = (torch.arange(MAX_TAGS) < count[:, None]).float()
    centre = 0.2 + 0.6 * torch.rand(n, MAX_TAGS, 2)
    size = 0.08 + 0.1 * torch.rand(n, MAX_TAGS, 2)
    box = torch.cat([centre - size / 2, centre + size / 2], dim=-1)
    query = torch.cat([centre, size, size.prod(-1, keepdim=True), torch.ones(n, MAX_TAGS, 1)], dim=-1)
    query = query + 0.01 * torch.randn_like(query)
    return query * mask.unsqueeze(-1), box * mask.unsqueeze(-1), mask


model, criterion = TagLocator(), CompleteIoULoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(200):
    query, box, mask = shelf_photos(32)
    loss = criterion(model(query, mask), box, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
