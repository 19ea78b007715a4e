"""Optimise a train of MR gradient lobes so that the k-space path follows a target."""

from dataclasses import dataclass
from types import SimpleNamespace

import torch
import torch.nn as nn

GAMMA = 42.576
RASTER = 0.01


@dataclass
class Limits:
    max_grad: float = 40.0
    max_slew: float = 180.0


def make_trapezoid(amplitude, rise, flat, fall):
    waveform = torch.tensor([0.0, amplitude, amplitude, 0.0])  # -
    # + edge = torch.zeros_like(amplitude)
    # + waveform = torch.stack([edge, amplitude, amplitude, edge])
    times = torch.tensor([0.0, rise, rise + flat, rise + flat + fall])
    return SimpleNamespace(waveform=waveform, times=times, duration=rise + flat + fall)


def on_raster(event):
    n = round(event.duration / RASTER)
    t = (torch.arange(n) + 0.5) * RASTER
    seg = torch.searchsorted(event.times, t).clamp(1, len(event.times) - 1)
    t0, t1 = event.times[seg - 1], event.times[seg]
    w0, w1 = event.waveform[seg - 1], event.waveform[seg]
    return w0 + (w1 - w0) * (t - t0) / (t1 - t0)


class LobeTrain(nn.Module):
    def __init__(self, n_lobes, limits):
        super().__init__()
        self.limits = limits
        self.raw = nn.Parameter(0.1 * torch.randn(2, n_lobes))

    def amplitudes(self):
        return self.limits.max_grad * torch.tanh(self.raw)

    def forward(self):
        axes = []
        for row in self.amplitudes():
            lobes = [make_trapezoid(a, rise=0.12, flat=0.2, fall=0.12) for a in row]
            axes.append(torch.cat([on_raster(lobe) for lobe in lobes]))
        return torch.stack(axes)


def k_space(grad):
    return GAMMA * torch.cumsum(grad, dim=-1) * RASTER * 1e-3


def spiral_target(n, turns=1.5):
    s = torch.linspace(0, 1, n)
    phase = 2 * torch.pi * turns * s
    return torch.stack([s * torch.cos(phase), s * torch.sin(phase)])


def objective(grad, target, limits):
    k = k_space(grad)
    slew = torch.diff(grad, dim=-1) / RASTER / limits.max_slew
    return (k - target).square().mean() + 1e-3 * torch.relu(slew.abs() - 1).square().mean()


def main():
    torch.manual_seed(8)
    limits = Limits()
    train = LobeTrain(n_lobes=14, limits=limits)
    target = spiral_target(train().shape[-1])
    opt = torch.optim.Adam(train.parameters(), lr=0.02)
    for it in range(60):
        opt.zero_grad()
        loss = objective(train(), target, limits)
        loss.backward()
        opt.step()
        if it % 10 == 0 or it == 59:
            print(
                f"iter {it:3d}  loss {loss.item():.5f}  peak {train.amplitudes().abs().max().item():.2f} mT/m"
            )


if __name__ == "__main__":
    main()
