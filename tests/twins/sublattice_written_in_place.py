"""Normalising flow for the 1D phi^4 lattice, trained with the reverse KL."""

import math

import torch
from torch import nn

torch.manual_seed(11)

L, BATCH = 16, 128
M2, LAM = 0.4, 1.0


def action(phi):
    kinetic = 0.5 * (phi - phi.roll(1, dims=1)).square()
    potential = 0.5 * M2 * phi.square() + LAM * phi.pow(4) / 4
    return (kinetic + potential).sum(1)


class StaggeredCoupling(nn.Module):
    """Affine update of one sublattice given the other."""

    def __init__(self, parity, width=48):
        super().__init__()
        self.active, self.frozen = slice(parity, None, 2), slice(1 - parity, None, 2)
        self.trunk = nn.Sequential(
            nn.Linear(L // 2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.log_scale = nn.Linear(width, L // 2)
        self.shift = nn.Linear(width, L // 2)
        for head in (self.log_scale, self.shift):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, phi, logq):
        ctx = self.trunk(phi[:, self.frozen])
        s, t = self.log_scale(ctx).tanh(), self.shift(ctx)
        phi[:, self.active] = phi[:, self.active] * s.exp() + t  # -
        return phi, logq - s.sum(1)  # -
        # + out = phi.clone()
        # + out[:, self.active] = phi[:, self.active] * s.exp() + t
        # + return out, logq - s.sum(1)


class LatticeFlow(nn.Module):
    def __init__(self, n_layers=4):
        super().__init__()
        self.layers = nn.ModuleList(StaggeredCoupling(i % 2) for i in range(n_layers))

    def sample(self, n):
        phi = torch.randn(n, L)
        logq = -0.5 * phi.square().sum(1) - 0.5 * L * math.log(2 * math.pi)
        for layer in self.layers:
            phi, logq = layer(phi, logq)
        return phi, logq


def effective_sample_size(logw):
    w = (logw - logw.max()).exp()
    return (w.sum() ** 2 / (w.square().sum() * len(w))).item()


def main():
    flow = LatticeFlow()
    opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
    for step in range(120):
        phi, logq = flow.sample(BATCH)
        loss = (logq + action(phi)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == 119:
            ess = effective_sample_size((-action(phi) - logq).detach())
            print(f"step {step:3d}  reverse KL {loss.item():8.3f}  ESS {ess:.3f}")


if __name__ == "__main__":
    main()
