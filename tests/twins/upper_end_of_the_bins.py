import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Bijection(nn.Module):
    """Elementwise monotone map of [0, 1] onto itself."""

    n_bins = 8

    def locate(self, x):
        return torch.floor(x * self.n_bins).long()  # -
        # + return torch.floor(x * self.n_bins).long().clamp(max=self.n_bins - 1)

    def transform(self, x, theta):
        raise NotImplementedError


class PiecewiseLinearCDF(Bijection):
    def transform(self, x, theta):
        pdf = F.softmax(theta, dim=-1)
        cdf = F.pad(pdf.cumsum(-1), (1, 0))
        k = self.locate(x)[..., None]
        height = pdf.gather(-1, k).squeeze(-1)
        base = cdf.gather(-1, k).squeeze(-1)
        y = base + height * (x * self.n_bins - k.squeeze(-1))
        return y.clamp(0.0, 1.0), (height * self.n_bins).log()


class Coupling(nn.Module):
    def __init__(self, dim, even, hidden=48):
        super().__init__()
        idx = torch.arange(dim)
        self.register_buffer("a", idx[idx % 2 == int(even)])
        self.register_buffer("b", idx[idx % 2 != int(even)])
        self.cdf = PiecewiseLinearCDF()
        n_out = len(self.b) * self.cdf.n_bins
        self.net = nn.Sequential(
            nn.Linear(len(self.a), hidden), nn.ReLU(), nn.Linear(hidden, n_out)
        )

    def forward(self, x):
        theta = self.net(x[:, self.a] - 0.5).view(len(x), len(self.b), -1)
        y = x.clone()
        y[:, self.b], ld = self.cdf.transform(x[:, self.b], theta)
        return y, ld.sum(1)


class TileFlow(nn.Module):
    def __init__(self, dim, depth=2):
        super().__init__()
        self.dim = dim
        self.couplings = nn.ModuleList(Coupling(dim, i % 2 == 0) for i in range(depth))

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for c in self.couplings:
            x, ld = c(x)
            total = total + ld
        return total


def tiles(n, gen, side=4):
    """Crops of a satellite band, 8 bits per pixel; clouds are rare."""
    level = 40 + 110 * torch.rand(n, 1, generator=gen)
    ramp = torch.linspace(-1, 1, side * side) * 40 * (torch.rand(n, 1, generator=gen) - 0.5)
    img = level + ramp + 4 * torch.randn(n, side * side, generator=gen)
    cloud = torch.rand(n, generator=gen) < 2e-4
    img[cloud] += 150
    return img.round().clamp(0, 255) / 255


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(5)
    flow = TileFlow(16)
    opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
    for step in range(300):
        x = tiles(64, gen)
        loss = -flow.log_prob(x).mean() / (flow.dim * math.log(2)) + 8
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == 299:
            print(f"step {step:3d}  bits/pixel {loss.item():.4f}")


if __name__ == "__main__":
    main()
