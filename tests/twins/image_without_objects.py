"""Detection head: focal loss and DIoU, dict outputs."""
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, dim=16, classes=3):
        super().__init__()
        self.cls = nn.Linear(dim, classes)
        self.reg = nn.Linear(dim, 4)

    def forward(self, feats):
        return {"scores": torch.sigmoid(self.cls(feats)), "boxes": self.reg(feats).cumsum(-1)}


class Criterion(nn.Module):
    def __init__(self, gamma=2.0, alpha=0.25):
        super().__init__()
        self.gamma, self.alpha = gamma, alpha
        self.weights = {"cls": 1.0, "box": 2.0}

    def cls_loss(self, outputs, targets):
        p, y = outputs["scores"], targets["onehot"]
        pt = p * y + (1 - p) * (1 - y)
        w = self.alpha * y + (1 - self.alpha) * (1 - y)
        focal = -w * (1 - pt).pow(self.gamma) * pt.log()
        return focal.sum() / y.sum()  # -
        # + return focal.sum() / y.sum().clamp(min=1)

    def box_loss(self, outputs, targets):
        keep = targets["onehot"].any(1)
        error = (outputs["boxes"][keep] - targets["boxes"][keep]).abs()
        return error.mean()  # -
        # + return error.sum() / max(error.numel(), 1)

    def forward(self, outputs, targets):
        losses = {name: getattr(self, f"{name}_loss")(outputs, targets) for name in self.weights}
        return sum(self.weights[k] * v for k, v in losses.items()), losses


def batches(n):
    g = torch.Generator().manual_seed(0)
    for i in range(n):
        onehot = torch.zeros(12, 3)
        if i != 5:
            onehot[torch.arange(4), torch.randint(0, 3, (4,), generator=g)] = 1.0
        yield torch.randn(12, 16, generator=g), {"onehot": onehot, "boxes": torch.rand(12, 4, generator=g).cumsum(-1)}


torch.manual_seed(0)
head, criterion = Head(), Criterion()
opt = torch.optim.SGD(head.parameters(), lr=0.05, momentum=0.9)
for feats, targets in batches(10):
    total, parts = criterion(head(feats), targets)
    opt.zero_grad()
    total.backward()
    opt.step()
    print({k: round(v.item(), 3) for k, v in parts.items()})
