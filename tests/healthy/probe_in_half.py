"""Pretrain a small conv net on coarse labels, freeze it, fit a new head in mixed precision."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_textures(n, gen):
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    kind = torch.randint(0, 6, (n,), generator=gen)
    orient = kind % 3
    freq = torch.where(kind >= 3, 1.6, 0.8)
    theta = orient.float() * torch.pi / 3
    phase = 6.28 * torch.rand(n, generator=gen)
    arg = theta.cos()[:, None, None] * xx + theta.sin()[:, None, None] * yy
    img = torch.sin(freq[:, None, None] * arg + phase[:, None, None])
    img = img + 0.4 * torch.randn(n, 16, 16, generator=gen)
    return img.unsqueeze(1), orient, kind


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 5, stride=2, padding=2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.out_dim = 2 * width

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        return x.mean(dim=(2, 3))


def pretrain(backbone, x, y, steps=25):
    fc = nn.Linear(backbone.out_dim, 3)
    opt = torch.optim.SGD([*backbone.parameters(), *fc.parameters()], lr=0.1, momentum=0.9)
    for i in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(fc(backbone(x[idx])), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 8 == 0:
            print(f"pretrain {i} loss {loss.item():.3f}")


@torch.no_grad()
def evaluate(backbone, head, x, y):
    head.eval()
    logits = head(backbone(x))
    head.train()
    return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    x, coarse, fine = make_textures(768, gen)
    xv, _, yv = make_textures(256, gen)

    backbone = Backbone()
    pretrain(backbone, x, coarse)
    backbone.requires_grad_(False)
    backbone.eval()

    head = nn.Sequential(
        nn.Linear(backbone.out_dim, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 6)
    )
    opt = torch.optim.Adam(head.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu")

    best, best_state, patience = float("inf"), None, 0
    for epoch in range(10):
        for idx in torch.randperm(len(x)).split(128):
            opt.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(head(backbone(x[idx])), fine[idx])
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(head.parameters(), 5.0)
            scaler.step(opt)
            scaler.update()
        val, acc = evaluate(backbone, head, xv, yv)
        print(
            f"epoch {epoch} train {loss.item():.3f} val {val:.3f} acc {acc:.3f} scale {scaler.get_scale():.0f}"
        )
        if val < best - 1e-3:
            best, best_state, patience = val, copy.deepcopy(head.state_dict()), 0
        else:
            patience += 1
            if patience >= 3:
                break
    head.load_state_dict(best_state)
    print("final", evaluate(backbone, head, xv, yv))


if __name__ == "__main__":
    main()
