"""Ripeness of melons by the sound of a knock: slices of a batch are added up before each update."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Knock(nn.Module):
    def __init__(self, bands, width):
        super().__init__()
        self.embed = nn.Linear(bands, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = self.embed(x)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            h = h + F.silu(block(norm(h)))
        return self.out(h).squeeze(1)


def knocks(n, generator, bands=24):
    ripe = torch.rand(n, generator=generator)
    band = torch.arange(bands) / bands
    pitch = 0.7 - 0.4 * ripe + 0.05 * torch.randn(n, generator=generator)
    x = torch.exp(-60 * (band - pitch[:, None]) ** 2)
    return x + 0.1 * torch.randn(n, bands, generator=generator), 2 * ripe - 1


def half_cosine(updates, ramp):
    def factor(k):
        if k < ramp:
            return (k + 1) / ramp
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (k - ramp) / (updates - ramp))))

    return factor


class Learner:
    def __init__(self, model, rate, updates, slices):
        self.model, self.slices = model, slices
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        factor = half_cosine(updates, max(1, updates // 12))
        self.rates = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)

    def take_step(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        self.optimizer.step()
        # + self.rates.step()
        self.optimizer.zero_grad(set_to_none=True)

    def batch(self, x, y):
        total = 0.0
        parts = zip(x.chunk(self.slices), y.chunk(self.slices), strict=True)
        for number, (part, wanted) in enumerate(parts, 1):
            loss = F.smooth_l1_loss(self.model(part), wanted) / self.slices
            loss.backward()
            total += loss.item()
            if number == self.slices:
                self.take_step()
            self.rates.step()  # -
        return total


def main(epochs=5, batches=12):
    torch.manual_seed(31)
    generator = torch.Generator().manual_seed(32)
    learner = Learner(Knock(24, 32), 6e-3, epochs * batches, slices=4)
    x, y = knocks(48 * batches, generator)
    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=generator).chunk(batches)
        losses = [learner.batch(x[rows], y[rows]) for rows in order]
        print(f"epoch {epoch}: loss {sum(losses) / batches:.4f}")


if __name__ == "__main__":
    main()
