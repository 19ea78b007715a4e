# symptom: nan-grad
# phase: backward
# op: pow
# cause: singular-derivative
# fix: epsilon
"""Generalised-mean pooling for image retrieval, without the clamp of the original."""

import torch
import torch.nn as nn

torch.manual_seed(2)


class GeM(nn.Module):
    def __init__(self, p=3.0):
        super().__init__()
        self.p = p

    def forward(self, x):
        return x.pow(self.p).mean((-2, -1)).pow(1.0 / self.p)  # <- culprit


class Retrieval(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Softplus())
        self.pool = GeM()
        self.head = nn.Linear(8, 2)

    def forward(self, image, region):
        return self.head(self.pool(self.backbone(image) * region))


region = torch.ones(4, 1, 9, 9)
region[3] = 0.0
model = Retrieval()
loss = nn.functional.cross_entropy(
    model(torch.rand(4, 3, 9, 9), region), torch.tensor([0, 1, 1, 0])
)
loss.backward()
print(loss.item(), model.head.weight.grad.norm().item())
