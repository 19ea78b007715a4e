import torch
from torch import nn
from torch.distributions import Normal


class CensoredCohort(torch.utils.data.Dataset):
    """Follow-up times (years) with right censoring at the end of the study."""

    def __init__(self, n=1200, n_cov=6, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, n_cov, generator=g)
        beta = torch.tensor([0.8, -0.6, 0.4, 0.0, 0.3, -0.2])
        log_t = 0.5 + self.x @ beta + 0.12 * torch.randn(n, generator=g)
        entry = 4.0 * torch.rand(n, generator=g)
        log_c = (6.0 - entry).log()
        self.event = log_t <= log_c
        self.log_time = torch.minimum(log_t, log_c)
        # transferred patients
        moved = torch.rand(n, generator=g) < 0.01
        self.event[moved] = False
        self.log_time[moved] = log_c[moved]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.log_time[i], self.event[i]


class LogNormalAFT(nn.Module):
    def __init__(self, n_cov):
        super().__init__()
        self.linear = nn.Linear(n_cov, 1)
        self.log_scale = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return Normal(self.linear(x).squeeze(-1), self.log_scale.exp())


def log_survival(dist, log_time):
    return torch.log(1 - dist.cdf(log_time))  # -
    # + return torch.special.log_ndtr((dist.loc - log_time) / dist.scale)


def nll(dist, log_time, event):
    observed = dist.log_prob(log_time)[event]
    censored = log_survival(dist, log_time)[~event]
    return -(observed.sum() + censored.sum()) / len(log_time)


def train():
    torch.manual_seed(0)
    ds = CensoredCohort()
    loader = torch.utils.data.DataLoader(ds, batch_size=200, shuffle=True)
    model = LogNormalAFT(6)
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(40):
        running = 0.0
        for x, log_time, event in loader:
            loss = nll(model(x), log_time, event)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item() * len(x)
        if epoch % 4 == 0 or epoch == 39:
            print(
                f"epoch {epoch:2d}  nll {running / len(ds):.4f}  sigma {model.log_scale.exp().item():.3f}"
            )


train()
