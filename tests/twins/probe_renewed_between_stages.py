"""Frost risk of orchards from weather stations: the readout starts anew when the classes get finer."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.mix = nn.Linear(channels, width)
        self.cell = nn.GRU(width, width, batch_first=True)

    def forward(self, x):
        _, h = self.cell(torch.tanh(self.mix(x)))
        return h[0]


class Frost(nn.Module):
    def __init__(self, channels, width, levels):
        super().__init__()
        self.encoder = Encoder(channels, width)
        self.readout = nn.Linear(width, levels)

    def forward(self, x):
        return self.readout(self.encoder(x))


def finer(model, levels):
    """Split each level in two, and start from what was learnt of them."""
    old = model.readout
    model.readout = nn.Linear(old.in_features, levels)
    with torch.no_grad():
        model.readout.weight.copy_(old.weight.repeat_interleave(levels // old.out_features, 0))


class Stages:
    def __init__(self, model, rate, decay, span):
        self.model = model
        self.rate, self.decay = rate, decay
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=span)
        self.span = span

    def refine(self, levels):
        finer(self.model, levels)
        # + self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.rate, weight_decay=self.decay)
        # + self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=self.span)

    def train(self, batches):
        total = 0.0
        for x, y in batches:
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            total += loss.item()
        return total / len(batches)


def nights(n, levels, generator):
    warmth = torch.rand(n, 1, generator=generator)
    hours = torch.linspace(0, 1, 12)
    sky = torch.rand(n, 1, generator=generator)
    air = 6 * warmth - 8 * hours * sky
    x = torch.stack([air, sky.expand(n, 12), 0.5 * air + sky], dim=2)
    x = x + 0.2 * torch.randn(n, 12, 3, generator=generator)
    coldest = (air.min(1).values + 8) / 14
    return x, (coldest * levels).long().clamp(0, levels - 1)


def main():
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(7)
    stages = Stages(Frost(3, 24, 3), rate=5e-3, decay=0.01, span=120)
    for levels in (3, 6):
        if levels > 3:
            stages.refine(levels)
        batches = [nights(32, levels, generator) for _ in range(20)]
        for epoch in range(3):
            print(f"{levels} levels, epoch {epoch}: loss {stages.train(batches):.3f}")


if __name__ == "__main__":
    main()
