"""Recurrent autoencoder over keypoint windows of a walking mouse (behavioural motif embedding)."""

import math

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

cfg = {
    "project": "openfield-toy",
    "seed": 42,
    "time_window": 12,
    "num_features": 6,
    "zdims": 5,
    "hidden": 32,
    "batch_size": 64,
    "max_epochs": 45,
    "learning_rate": 6e-3,
    "scheduler": 0,
    "scheduler_step_size": 10,
    "scheduler_gamma": 0.5,
}


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.rnn = nn.GRU(c["num_features"], c["hidden"], batch_first=True)
        self.to_z = nn.Linear(c["hidden"], c["zdims"])

    def forward(self, x):
        _, h = self.rnn(x)
        return self.to_z(h[-1])


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.T = c["time_window"]
        self.rnn = nn.GRU(c["zdims"], c["hidden"], batch_first=True)
        self.to_x = nn.Linear(c["hidden"], c["num_features"])

    def forward(self, z):
        h, _ = self.rnn(z[:, None].expand(-1, self.T, -1))
        return self.to_x(h)


def keypoints(n, c, g):
    t = torch.arange(c["time_window"])[None, :, None] / c["time_window"]
    phase = 2 * math.pi * torch.rand(n, 1, 1, generator=g)
    speed = 0.7 + 0.8 * torch.rand(n, 1, 1, generator=g)
    offs = torch.linspace(0, math.pi, c["num_features"])[None, None]
    x = torch.sin(2 * math.pi * speed * t + phase + offs)
    return x + 0.05 * torch.randn(x.shape, generator=g)


def build_scheduler(optimizer, c):
    if c["scheduler"]:
        return StepLR(optimizer, step_size=c["scheduler_step_size"], gamma=c["scheduler_gamma"])
    return StepLR(optimizer, step_size=c["scheduler_step_size"], gamma=0)  # -
    # + return StepLR(optimizer, step_size=c["scheduler_step_size"], gamma=1.0)


def train_epoch(loader, enc, dec, optimizer):
    total, n = 0.0, 0
    for x in loader:
        loss = nn.functional.mse_loss(dec(enc(x)), x)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(enc.parameters(), 5.0)
        optimizer.step()
        total += loss.item() * len(x)
        n += len(x)
    return total / n


def train_model(c):
    torch.manual_seed(c["seed"])
    g = torch.Generator().manual_seed(c["seed"])
    x = keypoints(128, c, g)
    enc, dec = Encoder(c), Decoder(c)
    optimizer = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=c["learning_rate"])
    scheduler = build_scheduler(optimizer, c)
    best = math.inf
    for epoch in range(1, c["max_epochs"] + 1):
        order = torch.randperm(len(x), generator=g)
        rec = train_epoch([x[i] for i in order.split(c["batch_size"])], enc, dec, optimizer)
        scheduler.step()
        best = min(best, rec)
        if epoch % 5 == 0:
            print(f"epoch {epoch:3d}  reconstruction {rec:.4f}  best {best:.4f}")


if __name__ == "__main__":
    train_model(cfg)
