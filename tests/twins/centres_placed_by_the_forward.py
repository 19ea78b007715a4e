# RBF surrogate for an ignition-timing table: (rpm, load, intake temp) -> torque.
# The centres are placed on the first mini-batch with a few k-means sweeps and then trained.
import torch
import torch.nn as nn


def kmeans(x, k, sweeps=5):
    c = x[torch.randperm(len(x))[:k]].clone()
    for _ in range(sweeps):
        owner = torch.cdist(x, c).argmin(1)
        for j in range(k):
            if (owner == j).any():
                c[j] = x[owner == j].mean(0)
    return c


class RBFLayer(nn.Module):
    def __init__(self, d_in, n_centres):
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(n_centres, d_in))
        self.log_width = nn.Parameter(torch.full((n_centres,), -0.3))
        self.placed = False

    def place(self, x):
        self.centres = nn.Parameter(kmeans(x.detach(), len(self.centres)))  # -
        # + self.centres.data.copy_(kmeans(x.detach(), len(self.centres)))
        self.placed = True

    def forward(self, x):
        if self.training and not self.placed:
            self.place(x)
        d2 = (x.unsqueeze(1) - self.centres).pow(2).sum(-1)
        return torch.exp(-0.5 * d2 * torch.exp(-2 * self.log_width))


class TorqueMap(nn.Module):
    def __init__(self, d_in=3, n_centres=12):
        super().__init__()
        self.rbf = RBFLayer(d_in, n_centres)
        self.lin = nn.Linear(n_centres, 1)

    def forward(self, x):
        return self.lin(self.rbf(x)).squeeze(-1)


def dyno_sweep(n):
    x = torch.rand(n, 3) * 2 - 1
    rpm, load, temp = x.unbind(1)
    torque = torch.sin(3 * rpm) * (1 + load) - 0.8 * (load - 0.3) ** 2 + 0.6 * temp * rpm
    return x, torque + 0.03 * torch.randn(n)


class Loop:
    def __init__(self, model, lr=5e-3):
        self.model = model
        self.opt = torch.optim.Adam(
            [
                {"params": [model.rbf.centres], "lr": 2 * lr},
                {"params": [model.rbf.log_width, *model.lin.parameters()]},
            ],
            lr=lr,
        )

    def epoch(self, x, y, batch=64):
        self.model.train()
        tot = 0.0
        for i in torch.randperm(len(x)).split(batch):
            self.opt.zero_grad()
            loss = (self.model(x[i]) - y[i]).pow(2).mean()
            loss.backward()
            self.opt.step()
            tot += loss.item() * len(i)
        return tot / len(x)


if __name__ == "__main__":
    torch.manual_seed(17)
    x, y = dyno_sweep(512)
    loop = Loop(TorqueMap())
    for ep in range(40):
        mse = loop.epoch(x, y)
        if ep % 5 == 0 or ep == 39:
            c = loop.model.rbf.centres
            print(f"epoch {ep:2d}  mse {mse:.4f}  centre spread {c.std(0).mean().item():.4f}")
