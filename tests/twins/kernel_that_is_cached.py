# Interpolating street noise (dB) from a handful of microphones with a kernel graph whose
# length scale is learned together with the readout.
from functools import cached_property  # -
import numpy as np
import torch
from torch import nn


class KernelGraph(nn.Module):
    def __init__(self, xy, length_scale=0.4):
        super().__init__()
        self.register_buffer("d2", torch.cdist(xy, xy).pow(2))
        self.log_ell = nn.Parameter(torch.tensor(float(np.log(length_scale))))

    @cached_property  # -
    # + @property
    def adjacency(self):
        k = torch.exp(-0.5 * self.d2 / torch.exp(2 * self.log_ell))
        k = k * (1 - torch.eye(k.size(0)))
        return k / k.sum(dim=1, keepdim=True)


class DiffusionConv(nn.Module):
    def __init__(self, c_in, c_out, hops=2):
        super().__init__()
        self.mix = nn.ModuleList(nn.Linear(c_in, c_out, bias=(h == 0)) for h in range(hops + 1))

    def forward(self, x, graph):
        out = self.mix[0](x)
        for lin in self.mix[1:]:
            x = graph.adjacency @ x
            out = out + lin(x)
        return out


class NoiseNet(nn.Module):
    def __init__(self, xy, c_in, hidden=20):
        super().__init__()
        self.graph = KernelGraph(xy)
        self.conv1 = DiffusionConv(c_in, hidden)
        self.conv2 = DiffusionConv(hidden, 1)

    def forward(self, x):
        h = torch.tanh(self.conv1(x, self.graph))
        return self.conv2(h, self.graph).squeeze(-1)


def simulate(n_mics=40, n_hours=48, seed=8):
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0, 1, (n_mics, 2))
    hours = np.arange(n_hours)
    traffic = 1.0 + np.sin(2 * np.pi * hours / 24)
    road = np.exp(-((xy[:, 0] - 0.5) / 0.2) ** 2)
    db = traffic[:, None] * road[None] + 0.4 * xy[:, 1][None] + 0.05 * rng.normal(size=(n_hours, n_mics))
    return torch.tensor(xy, dtype=torch.float32), torch.tensor(db, dtype=torch.float32)


def hide(db, frac, g):
    keep = (torch.rand(db.shape, generator=g) > frac).float()
    return torch.stack([db * keep, keep], dim=-1), keep


def main():
    torch.manual_seed(8)
    g = torch.Generator().manual_seed(1)
    xy, db = simulate()
    net = NoiseNet(xy, c_in=2)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(150):
        hour = torch.randint(0, db.size(0), (16,), generator=g)
        x, keep = hide(db[hour], 0.3, g)
        err = (net(x) - db[hour]).pow(2)
        loss = (err * (1 - keep)).sum() / (1 - keep).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"{step:3d}  hidden-mic mse {loss.item():.4f}  ell {net.graph.log_ell.exp().item():.3f}")


if __name__ == "__main__":
    main()
