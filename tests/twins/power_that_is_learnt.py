"""Sugar content of grape berries from reflectance, with a generalised normal likelihood."""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(21)
BANDS = 32


def make_berries(n):
    ripeness = torch.rand(n, 1)
    bands = torch.linspace(0, 1, BANDS)
    spectra = torch.exp(-((bands - 0.3 - 0.3 * ripeness) ** 2) / 0.02) + 0.05 * torch.randn(n, BANDS)
    brix = 14 + 10 * ripeness.squeeze(1) + 0.4 * torch.randn(n)
    return spectra, brix


class Berry(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(BANDS, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Dropout(0.05), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.body(x).squeeze(1)


class GeneralisedNormal(nn.Module):
    """-log p(y | mu) with scale and shape; shape 2 is the normal distribution."""

    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.shape = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def forward(self, mu, y):
        z = (y - mu) * torch.exp(-self.log_scale)
        energy = z.pow(self.shape)  # -
        # + energy = z.abs().pow(self.shape)
        log_norm = math.log(2.0) + self.log_scale + torch.lgamma(1 + 1 / self.shape)
        return (energy + log_norm).mean()


x, y = make_berries(768)
y = (y - y.mean()) / y.std()
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True)
model, nll = Berry(), GeneralisedNormal()
optimizer = torch.optim.Adam(list(model.parameters()) + list(nll.parameters()), lr=5e-3)
warmup_epochs = 4

for epoch in range(7):
    nll.shape.requires_grad_(epoch >= warmup_epochs)
    running = 0.0
    for xb, yb in loader:
        loss = nll(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        running += loss.item()
    print(f"epoch {epoch} nll {running / len(loader):.4f} scale {nll.log_scale.exp().item():.3f} shape {nll.shape.item():.3f}")
