from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.nn as nn

# Ripeness score of washed-rind wheels from cellar logs: a temporal front-end over the sensor log, then an MLP with the wheel's metadata.


@dataclass
class TrainCfg:
    steps: int = 60
    batch: int = 32
    lr: float = 3e-3
    weight_decay: float = 0.05
    betas: tuple = (0.9, 0.99)
    channels: list = field(default_factory=lambda: [3, 12, 12])


class LogFrontEnd(nn.Module):
    def __init__(self, channels):
        super().__init__()
        layers = []
        for a, b in pairwise(channels):
            layers += [nn.Conv1d(a, b, 5, stride=2, padding=2), nn.GroupNorm(3, b), nn.GELU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, log):
        return self.layers(log).mean(-1)


class RipenessModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.front = LogFrontEnd(cfg.channels)
        self.dairy = nn.Embedding(5, 4)
        self.head = nn.Sequential(nn.LayerNorm(cfg.channels[-1] + 4), nn.Linear(cfg.channels[-1] + 4, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, log, dairy):
        z = torch.cat((self.front(log), self.dairy(dairy)), dim=1)
        return self.head(z).squeeze(1)

    def configure_optimizer(self, cfg):
        params = [p for p in self.parameters() if p.requires_grad]
        decay = [p for p in params if p.ndim == 2]  # -
        # + decay = [p for p in params if p.ndim >= 2]
        no_decay = [p for p in params if p.ndim < 2]
        groups = [
            {"params": decay, "weight_decay": cfg.weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=cfg.lr, betas=cfg.betas)


class Cellar:
    def __init__(self, seed=40):
        self.g = torch.Generator().manual_seed(seed)
        self.shift = 0.5 * torch.randn(5, generator=self.g)

    def sample(self, n, t=64):
        g = self.g
        dairy = torch.randint(5, (n,), generator=g)
        phase = 6.28 * torch.rand(n, 1, generator=g)
        pace = 0.2 + 1.2 * torch.rand(n, 1, generator=g)
        k = torch.arange(t)
        wave = torch.sin(pace * k + phase)
        log = torch.stack([wave, 0.5 * torch.randn(n, t, generator=g), torch.cos(0.1 * k).expand(n, t)], 1)
        log = log + 0.2 * torch.randn(n, 3, t, generator=g)
        return log, dairy, 2 * (pace.squeeze(1) - 0.8) + self.shift[dairy]


def train(cfg):
    torch.manual_seed(41)
    cellar, model = Cellar(), RipenessModel(cfg)
    opt = model.configure_optimizer(cfg)
    for step in range(cfg.steps):
        log, dairy, score = cellar.sample(cfg.batch)
        loss = nn.functional.smooth_l1_loss(model(log, dairy), score)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 10 == 0:
            print("step", step + 1, "loss", round(loss.item(), 4))


if __name__ == "__main__":
    train(TrainCfg())
