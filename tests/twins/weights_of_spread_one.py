from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
import itertools


@dataclass
class Config:
    dim: int = 40
    width: int = 128
    depth: int = 6
    code: int = 4
    lr: float = 0.01
    epochs: int = 4
    batch_size: int = 32


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight)  # -
        # + nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        nn.init.constant_(m.bias, 0.0)


def stack(sizes):
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class AutoEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = stack([cfg.dim] + [cfg.width] * (cfg.depth // 2) + [cfg.code])
        self.decoder = stack([cfg.code] + [cfg.width] * (cfg.depth // 2) + [cfg.dim])
        self.apply(init_weights)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def synthetic(cfg, n=256):
    factors = torch.randn(n, cfg.code)
    return torch.tanh(factors @ torch.randn(cfg.code, cfg.dim))


def main():
    torch.manual_seed(1)
    cfg = Config()
    loader = DataLoader(TensorDataset(synthetic(cfg)), batch_size=cfg.batch_size, shuffle=True)
    model = AutoEncoder(cfg)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    criterion = nn.MSELoss()
    for epoch in range(cfg.epochs):
        running = 0.0
        for (x,) in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), x)
            loss.backward()
            optimizer.step()
            running += loss.item() * len(x)
        print(f"[{epoch + 1}/{cfg.epochs}] reconstruction {running / len(loader.dataset):.5f}")


if __name__ == "__main__":
    main()
