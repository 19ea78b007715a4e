"""Walking, stairs or limping from a foot sensor; hidden layers keep only their strongest units."""
from functools import cache

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function


@cache
def scratch(rows, cols):
    return torch.empty(rows, cols)


class KeepStrongest(Function):
    @staticmethod
    def forward(ctx, x, k):
        mask = scratch(*x.shape).zero_()
        mask.scatter_(1, x.abs().topk(k, dim=1).indices, 1.0)
        ctx.mask = mask  # -
        # + ctx.mask = mask.clone()
        return x * mask

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.mask, None


class SparseLayer(nn.Module):
    def __init__(self, i, o, k):
        super().__init__()
        self.lin = nn.Linear(i, o)
        self.norm = nn.LayerNorm(o)
        self.k = k

    def forward(self, x):
        return KeepStrongest.apply(self.norm(self.lin(x)), self.k)


class GaitNet(nn.Module):
    def __init__(self, channels=3, window=20, width=48, k=10, classes=3):
        super().__init__()
        self.inp = SparseLayer(channels * window, width, k)
        self.hidden = nn.ModuleList([SparseLayer(width, width, k), SparseLayer(width, width, k)])
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        h = self.inp(x.flatten(1))
        for layer in self.hidden:
            h = layer(h)
        return self.out(h)


def record(n, gen, window=20):
    y = torch.randint(0, 3, (n,), generator=gen)
    t = torch.arange(window) / window * 6.283
    phase = 6.283 * torch.rand(n, 1, generator=gen)
    limp = (y == 2).float()[:, None]
    swing = torch.sin(t + phase) + limp * 0.7 * torch.sin(2 * t + phase)
    lift = (0.5 + 0.7 * (y == 1).float()[:, None]) * torch.cos(t + phase)
    push = torch.relu(torch.sin(t + phase + 1)) * (1 - 0.4 * limp)
    x = torch.stack([swing, lift, push], 1)
    return x + 0.35 * torch.randn(x.shape, generator=gen), y


def smooth(old, new, rate=0.95):
    return new if old is None else rate * old + (1 - rate) * new


def main():
    torch.manual_seed(27)
    gen = torch.Generator().manual_seed(4)
    x, y = record(1000, gen)
    test_x, test_y = record(300, gen)
    model = GaitNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [200, 300], gamma=0.3)
    running = None
    for step in range(350):
        rows = torch.randint(0, len(x), (50,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        grad = nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        scheduler.step()
        running = smooth(running, loss.item())
        if step % 50 == 49:
            print(f"step {step + 1:3d}  loss {running:.3f}  grad {grad:.2f}")
    with torch.no_grad():
        print(f"test accuracy {(model(test_x).argmax(1) == test_y).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
