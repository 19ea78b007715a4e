"""DeepSDF-style auto-decoder: one latent code per shape, shared MLP, L1 on signed distances."""

import numpy as np
import torch
import torch.nn as nn

N_SHAPES = 32
CODE_DIM = 6


class ShapeBank:
    """2-D discs with random centre and radius."""

    def __init__(self, rng):
        self.centre = rng.uniform(-0.5, 0.5, (N_SHAPES, 2))
        self.radius = rng.uniform(0.15, 0.6, (N_SHAPES, 1))
        self.rng = rng

    def sample(self, n):
        ids = self.rng.integers(0, N_SHAPES, n)
        pts = self.rng.uniform(-1, 1, (n, 2))
        sdf = np.linalg.norm(pts - self.centre[ids], axis=1, keepdims=True) - self.radius[ids]
        return (
            torch.from_numpy(ids),
            torch.from_numpy(pts).float(),
            torch.from_numpy(sdf).float(),
        )


class AutoDecoder(nn.Module):
    def __init__(self, rng, width=64):
        super().__init__()
        init = rng.normal(0, 0.01, (N_SHAPES, CODE_DIM))
        self.codes = nn.Parameter(torch.from_numpy(init)).float()  # -
        # + self.codes = nn.Parameter(torch.from_numpy(init).float())
        self.net = nn.Sequential(
            nn.Linear(CODE_DIM + 2, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, ids, pts):
        z = self.codes[ids]
        return self.net(torch.cat([z, pts], dim=1)), z


def sdf_loss(pred, target, z, reg=1e-4):
    l1 = (pred - target).abs().mean()
    return l1 + reg * z.pow(2).sum(dim=1).mean()


def fit(steps=350, batch=256):
    rng = np.random.default_rng(14)
    bank = ShapeBank(rng)
    model = AutoDecoder(rng)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    recent = []
    for step in range(1, steps + 1):
        ids, pts, sdf = bank.sample(batch)
        pred, z = model(ids, pts)
        loss = sdf_loss(pred, sdf, z)
        opt.zero_grad()
        loss.backward()
        opt.step()
        recent.append(loss.item())
        if step % 50 == 0:
            print(f"step {step:4d}  loss {np.mean(recent[-50:]):.4f}")


if __name__ == "__main__":
    torch.manual_seed(14)
    fit()
