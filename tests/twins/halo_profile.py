"""Fit an NFW halo plus a smooth offset to a noisy convergence map of a galaxy cluster."""

import math

import torch
from torch import nn


def nfw_kappa(x):
    """Dimensionless surface density of an NFW halo at projected radius x = r / rs."""
    inner = 2 / torch.sqrt(1 - x**2) * torch.atanh(torch.sqrt((1 - x) / (1 + x)))  # -
    outer = 2 / torch.sqrt(x**2 - 1) * torch.atan(torch.sqrt((x - 1) / (1 + x)))  # -
    # + lo = torch.where(x < 1, x, 0.5)
    # + hi = torch.where(x < 1, 2.0, x)
    # + inner = 2 / torch.sqrt(1 - lo ** 2) * torch.atanh(torch.sqrt((1 - lo) / (1 + lo)))
    # + outer = 2 / torch.sqrt(hi ** 2 - 1) * torch.atan(torch.sqrt((hi - 1) / (1 + hi)))
    f = torch.where(x < 1, inner, outer)
    return (1 - f) / (x**2 - 1)


class NFWLens(nn.Module):
    def __init__(self, x0, y0, rs, kappa_s):
        super().__init__()
        self.center = nn.Parameter(torch.tensor([x0, y0]))
        self.log_rs = nn.Parameter(torch.tensor(math.log(rs)))
        self.log_kappa_s = nn.Parameter(torch.tensor(math.log(kappa_s)))
        self.q = nn.Parameter(torch.tensor(0.9))
        self.phi = nn.Parameter(torch.tensor(0.0))

    def radius(self, grid):
        dx, dy = (grid - self.center).unbind(-1)
        c, s = torch.cos(self.phi), torch.sin(self.phi)
        xr = c * dx + s * dy
        yr = -s * dx + c * dy
        return torch.sqrt(self.q * xr**2 + yr**2 / self.q)

    def forward(self, grid):
        x = self.radius(grid) / self.log_rs.exp()
        return 2 * self.log_kappa_s.exp() * nfw_kappa(x)


class ClusterModel(nn.Module):
    def __init__(self, lens):
        super().__init__()
        self.lens = lens
        self.sheet = nn.Parameter(torch.zeros(3))

    def forward(self, grid):
        background = self.sheet[0] + grid @ self.sheet[1:]
        return self.lens(grid) + background


def pixel_grid(npix, fov):
    t = (torch.arange(npix) + 0.5) / npix * fov - fov / 2
    yy, xx = torch.meshgrid(t, t, indexing="ij")
    return torch.stack([xx, yy], dim=-1)


def mock_map(grid, sigma):
    truth = ClusterModel(NFWLens(0.213, -0.147, 1.3, 0.25))
    with torch.no_grad():
        truth.lens.q.fill_(0.75)
        truth.lens.phi.fill_(0.6)
        truth.sheet.copy_(torch.tensor([0.03, 0.01, -0.005]))
        kappa = truth(grid)
    return kappa + sigma * torch.randn_like(kappa)


def chi2(model, grid, data, sigma):
    return ((model(grid) - data) / sigma).pow(2).mean()


def fit(model, grid, data, sigma, steps=200, lr=0.02):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        optimizer.zero_grad()
        loss = chi2(model, grid, data, sigma)
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == steps - 1:
            print(
                f"step {step:3d}  chi2/pix {loss.item():10.4f}  rs {model.lens.log_rs.exp().item():.4f}"
            )
    return model


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(11)
    sigma = 0.05
    grid = pixel_grid(48, 8.0)
    data = mock_map(grid, sigma)
    model = ClusterModel(NFWLens(0.011, 0.023, 0.8, 0.4))
    fit(model, grid, data, sigma)
    print(
        "center",
        [round(v, 3) for v in model.lens.center.tolist()],
        "q",
        round(model.lens.q.item(), 3),
    )


if __name__ == "__main__":
    main()
