import numpy as np
import torch
from torch import nn

# Waiting time at a ski lift from gate counters, weather and hour; piecewise-linear encoding of the numeric columns,
# bins are refreshed from the most recent records before every pass.

SEED = 5
COLUMNS = ["gate_count", "hour", "wind", "snowgun_load"]
N_BINS = 8


def season(days=60, per_day=20):
    rng = np.random.default_rng(SEED)
    n = days * per_day
    day = np.repeat(np.arange(days), per_day)
    hour = rng.uniform(8, 17, n)
    gate = rng.gamma(3.0, 20.0, n) * (1 + 0.5 * np.sin(day / 7))
    wind = rng.gamma(2.0, 4.0, n)
    # snow guns are shut down from early March on
    guns = np.where(day < 45, rng.uniform(0, 1, n), 0.0)
    wait = (
        0.1 * gate + 2 * np.cos((hour - 12) / 2) + 0.2 * wind + 1.5 * guns + rng.normal(0, 0.5, n)
    )
    x = np.stack([gate, hour, wind, guns], 1).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(wait.astype(np.float32))


class QuantileBins:
    def __init__(self, n_bins):
        self.levels = torch.linspace(0, 1, n_bins + 1)
        self.edges = None

    def refresh(self, recent):
        self.edges = torch.quantile(recent, self.levels, dim=0).T.contiguous()
        return self

    def __call__(self, x):
        lower, upper = self.edges[:, :-1], self.edges[:, 1:]
        width = upper - lower
        fill = (x.unsqueeze(-1) - lower) / width  # -
        return fill.clamp(0, 1).flatten(1)  # -
        # + x = x.unsqueeze(-1)
        # + fill = (x - lower) / torch.where(width > 0, width, 1.0)
        # + fill = torch.where(width > 0, fill.clamp(0, 1), (x > lower).float())
        # + return fill.flatten(1)


class QueueModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.bins = QuantileBins(N_BINS)
        self.mlp = nn.Sequential(
            nn.Linear(len(COLUMNS) * N_BINS, 64), nn.ReLU(), nn.Dropout(0.05), nn.Linear(64, 1)
        )

    def forward(self, x):
        return self.mlp(self.bins(x)).squeeze(-1)


def run():
    torch.manual_seed(SEED)
    x, y = season()
    model = QueueModel()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    window, stride, step = 300, 100, 0
    for first in range(0, len(x) - window + 1, stride):
        recent = slice(first, first + window)
        model.bins.refresh(x[recent])
        xr, yr = x[recent], y[recent]
        for chunk in torch.cat([torch.randperm(window) for _ in range(4)]).split(60):
            loss = nn.functional.huber_loss(model(xr[chunk]), yr[chunk], delta=3.0)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
        print(f"records {first:4d}-{first + window:4d}  step {step:3d}  huber {loss.item():.3f}")


run()
