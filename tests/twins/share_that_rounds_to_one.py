from dataclasses import dataclass

import torch
from torch import nn
from torch.distributions import NegativeBinomial


@dataclass
class FitConfig:
    n_cells: int = 512
    n_genes: int = 40
    n_bursty: int = 4
    lr: float = 0.1
    steps: int = 300
    seed: int = 11


def simulate(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    depth = torch.exp(0.3 * torch.randn(cfg.n_cells, 1, generator=g))
    mean = torch.exp(1.0 + torch.randn(1, cfg.n_genes, generator=g))
    counts = torch.poisson(depth * mean, generator=g)
    # viral transcripts
    infected = torch.rand(cfg.n_cells, cfg.n_bursty, generator=g) < 0.004
    load = torch.poisson(
        torch.exp(14.5 + torch.randn(cfg.n_cells, cfg.n_bursty, generator=g)), generator=g
    )
    counts[:, : cfg.n_bursty] = torch.where(infected, load, torch.zeros_like(load))
    return counts, depth


class CountModel(nn.Module):
    def __init__(self, counts, depth):
        super().__init__()
        base = (counts / depth).mean(0).clamp(min=0.1)
        self.log_mean = nn.Parameter(base.log())
        self.log_theta = nn.Parameter(torch.zeros(counts.size(1)))

    def forward(self, depth):
        mu = depth * self.log_mean.exp()
        theta = self.log_theta.exp()
        return mu_theta_nb(mu, theta)


def mu_theta_nb(mu, theta):
    return NegativeBinomial(total_count=theta, probs=mu / (mu + theta))  # -
    # + return NegativeBinomial(total_count=theta, logits=mu.log() - theta.log())


def fit(cfg):
    torch.manual_seed(cfg.seed)
    counts, depth = simulate(cfg)
    model = CountModel(counts, depth)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for step in range(cfg.steps):
        nll = -model(depth).log_prob(counts).mean()
        opt.zero_grad()
        nll.backward()
        opt.step()
        if step % 30 == 0 or step == cfg.steps - 1:
            th = model.log_theta.exp()
            print(
                f"{step:4d}  nll {nll.item():.4f}  theta [{th.min().item():.2e}, {th.max().item():.2e}]"
            )
    return model


if __name__ == "__main__":
    fit(FitConfig())
