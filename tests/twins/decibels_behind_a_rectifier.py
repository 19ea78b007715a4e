"""Inpainting of masked frames in a log-mel spectrogram (decibels relative to full scale)."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def log_mel(n, frames=24, bands=16, seed=6):
    g = torch.Generator().manual_seed(seed)
    f = torch.linspace(0, 1, bands)
    t = torch.linspace(0, 1, frames)
    centre = 0.2 + 0.6 * torch.rand(n, 1, 1, generator=g)
    drift = 0.3 * torch.randn(n, 1, 1, generator=g)
    ridge = centre + drift * t.view(1, -1, 1)
    power = torch.exp(-(((f.view(1, 1, -1) - ridge) / 0.15) ** 2)) + 1e-4
    return 10 * torch.log10(power)


class MelInpainter(nn.Module):
    def __init__(self, bands=16, hidden=48):
        super().__init__()
        self.inp = nn.Conv1d(bands + 1, hidden, 5, padding=2)
        self.mid = nn.Conv1d(hidden, hidden, 5, padding=2)
        self.out = nn.Conv1d(hidden, bands, 5, padding=2)

    def forward(self, mel, keep):
        h = torch.cat([mel * keep, keep], dim=1)
        h = F.relu(self.inp(h))
        h = F.relu(self.mid(h))
        return F.relu(self.out(h))  # -
        # + return self.out(h)


def random_gap(n, frames):
    keep = torch.ones(n, 1, frames)
    for row, start in enumerate(torch.randint(0, frames - 5, (n,)).tolist()):
        keep[row, :, start : start + 5] = 0
    return keep


def fit(epochs=12, batch=32):
    torch.manual_seed(math.floor(math.pi * 10))
    mel = log_mel(256).transpose(1, 2) / 20.0
    model = MelInpainter()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(mel)).split(batch):
            clean = mel[rows]
            keep = random_gap(len(rows), clean.size(-1))
            loss = F.l1_loss(model(clean, keep), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(rows)
        if epoch % 3 == 2:
            print(f"epoch {epoch + 1}: L1 {20 * total / len(mel):.3f} dB")


fit()
