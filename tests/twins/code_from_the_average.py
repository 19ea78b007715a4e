"""Implicit 2-D blobs: a decoder with one latent code per shape, then codes for shapes seen for the first time."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class BlobField(nn.Module):
    def __init__(self, code=12, width=64):
        super().__init__()
        self.register_buffer("freq", 2.0 ** torch.arange(3))
        self.inp = nn.Linear(2 + 12 + code, width)
        self.mid = nn.Linear(width, width)
        self.skip = nn.Linear(width + code, width)
        self.out = nn.Linear(width, 1)

    def forward(self, points, code):
        wave = (points[..., None] * self.freq * math.pi / 2).flatten(-2)
        code = code.expand(points.shape[0], -1) if code.shape[0] == 1 else code
        h = F.softplus(self.inp(torch.cat([points, wave.sin(), wave.cos(), code], -1)), beta=10)
        h = F.softplus(self.mid(h), beta=10)
        h = F.softplus(self.skip(torch.cat([h, code], -1)), beta=10)
        return self.out(h).squeeze(-1)


def blob_distance(points, shape):
    angle = torch.atan2(points[:, 1], points[:, 0])
    radius = shape[:, 0] + shape[:, 1] * torch.cos(2 * angle) + shape[:, 2] * torch.sin(3 * angle)
    return (points.norm(dim=-1) - radius).clamp(-0.3, 0.3)


def random_shapes(n):
    return torch.stack([0.5 + 0.1 * torch.randn(n), 0.1 * torch.randn(n), 0.08 * torch.randn(n)], 1)


def train_field(field, codes, shapes, steps=150):
    optimizer = torch.optim.Adam([
        {"params": field.parameters(), "lr": 2e-3},
        {"params": codes.parameters(), "lr": 5e-3},
    ])
    for step in range(steps):
        which = torch.randint(0, len(shapes), (256,))
        points = torch.rand(256, 2) * 2 - 1
        code = codes(which)
        target = blob_distance(points, shapes[which])
        loss = F.l1_loss(field(points, code), target) + 1e-4 * code.pow(2).sum(-1).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"[train] {step:4d} {loss.item():.4f}")


def average_code(codes):
    return codes.weight.mean(0, keepdim=True)  # -
    # + return codes.weight.detach().mean(0, keepdim=True)


def fit_code(field, start, shape, steps=40, lr=2e-2):
    code = start.requires_grad_(True)
    optimizer = torch.optim.Adam([code], lr=lr)
    first = None
    for _ in range(steps):
        points = torch.rand(256, 2) * 2 - 1
        loss = F.l1_loss(field(points, code), blob_distance(points, shape[None]))
        loss = loss + 1e-4 * code.pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    return code, first, loss.item()


def main():
    torch.manual_seed(0)
    shapes = random_shapes(24)
    field = BlobField()
    codes = nn.Embedding(len(shapes), 12)
    nn.init.normal_(codes.weight, std=1 / math.sqrt(12))
    train_field(field, codes, shapes)

    for p in field.parameters():
        p.requires_grad_(False)
    for i, shape in enumerate(random_shapes(3)):
        code, first, last = fit_code(field, average_code(codes), shape)
        print(f"[fit] shape {i}: {first:.4f} -> {last:.4f}  |code| {code.norm():.3f}")


if __name__ == "__main__":
    main()
