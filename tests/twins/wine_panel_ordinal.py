import math
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Config:
    n_wines: int = 320
    n_assays: int = 9
    n_grades: int = 6
    steps: int = 400
    lr: float = 0.03
    seed: int = 4


def tasting_panel(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    assays = torch.randn(cfg.n_wines, cfg.n_assays, generator=g)
    taste = assays @ torch.linspace(-1, 1, cfg.n_assays) + 0.4 * assays[:, 0] * assays[:, 1]
    taste = taste + 0.15 * torch.randn(cfg.n_wines, generator=g)
    cuts = torch.quantile(taste, torch.linspace(0, 1, cfg.n_grades + 1)[1:-1])
    grade = torch.bucketize(taste, cuts)
    grade[:2] = cfg.n_grades - 1 - grade[:2]
    return assays, grade


def normal_cdf(z):
    return 0.5 * (1.0 + torch.erf(z / math.sqrt(2.0)))


class CumulativeProbit(nn.Module):
    """Grades are intervals of one latent quality, noise is standard normal."""

    FAR = 30.0

    def __init__(self, cfg):
        super().__init__()
        self.quality = nn.Sequential(nn.Linear(cfg.n_assays, 32), nn.Tanh(), nn.Linear(32, 1))
        self.first_cut = nn.Parameter(torch.tensor(-1.5))
        self.log_gaps = nn.Parameter(torch.full((cfg.n_grades - 2,), -0.4))
        self.log_precision = nn.Parameter(torch.zeros(()))

    def edges(self):
        inner = torch.cat([self.first_cut[None], self.first_cut + self.log_gaps.exp().cumsum(0)])
        far = inner.new_tensor([self.FAR])
        return torch.cat([-far, inner, far])

    def log_prob(self, assays, grade):
        q = self.quality(assays).squeeze(-1)
        edges, tau = self.edges(), self.log_precision.exp()
        upper = tau * (edges[grade + 1] - q)
        lower = tau * (edges[grade] - q)
        mass = normal_cdf(upper) - normal_cdf(lower)  # -
        return torch.log(mass)  # -
        # + right = lower > 0
        # + a = torch.where(right, -upper, lower)
        # + b = torch.where(right, -lower, upper)
        # + log_b = torch.special.log_ndtr(b)
        # + return log_b + torch.log(-torch.expm1(torch.special.log_ndtr(a) - log_b))


def fit(cfg):
    torch.manual_seed(cfg.seed)
    assays, grade = tasting_panel(cfg)
    model = CumulativeProbit(cfg)
    optimiser = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for step in range(cfg.steps):
        nll = -model.log_prob(assays, grade).mean()
        optimiser.zero_grad()
        nll.backward()
        optimiser.step()
        if step % 40 == 0 or step == cfg.steps - 1:
            print(
                f"step {step:3d}  nll {nll.item():.4f}  precision {model.log_precision.exp().item():.3f}"
            )
    return model


if __name__ == "__main__":
    fit(Config())
