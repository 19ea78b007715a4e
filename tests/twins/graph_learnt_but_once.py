"""Graph-WaveNet style speed forecaster with a learned (self-adaptive) adjacency matrix."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_series(n_sensors, length, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(length, dtype=torch.float32)
    phase = torch.rand(n_sensors, 1, generator=g) * 2 * math.pi
    daily = torch.sin(2 * math.pi * t / 48 + phase)
    noise = 0.2 * torch.randn(n_sensors, length, generator=g)
    upstream = torch.roll(daily, shifts=(1, 3), dims=(0, 1))
    return 0.6 * daily + 0.6 * upstream + noise


def windows(series, history):
    xs = series.unfold(1, history + 1, 1).permute(1, 0, 2)
    return xs[..., :history], xs[..., history]


class AdaptiveGraphConv(nn.Module):
    def __init__(self, n_nodes, in_dim, out_dim, emb=8):
        super().__init__()
        self.source = nn.Parameter(torch.randn(n_nodes, emb) * 0.3)
        self.target = nn.Parameter(torch.randn(n_nodes, emb) * 0.3)
        self.self_fc = nn.Linear(in_dim, out_dim)
        self.neigh_fc = nn.Linear(in_dim, out_dim)
        self.adj = self.adjacency()  # -

    def adjacency(self):
        return F.softmax(F.relu(self.source @ self.target.t()), dim=1)

    def forward(self, x):
        mixed = torch.einsum("nm,bmf->bnf", self.adj, x)  # -
        # + mixed = torch.einsum("nm,bmf->bnf", self.adjacency(), x)
        return self.self_fc(x) + self.neigh_fc(mixed)


class Forecaster(nn.Module):
    def __init__(self, n_nodes, history, hidden):
        super().__init__()
        self.gc1 = AdaptiveGraphConv(n_nodes, history, hidden)
        self.gc2 = AdaptiveGraphConv(n_nodes, hidden, hidden)
        self.readout = nn.Linear(hidden, 1)

    def forward(self, x):
        h = F.relu(self.gc1(x))
        h = F.relu(self.gc2(h))
        return self.readout(h).squeeze(-1)


def fit(args):
    x, y = windows(make_series(args.sensors, 300, args.seed), args.history)
    model = Forecaster(args.sensors, args.history, args.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        perm = torch.randperm(len(x))
        losses = []
        for idx in perm.split(args.batch_size):
            optimizer.zero_grad()
            loss = F.l1_loss(model(x[idx]), y[idx])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1:02d} | train mae {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sensors", type=int, default=20)
    parser.add_argument("--history", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    fit(args)
