import numpy as np
import torch
import torch.nn as nn
import itertools


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 0.02)  # -
        # + nn.init.xavier_normal_(m.weight, gain=nn.init.calculate_gain("tanh"))
        nn.init.zeros_(m.bias)


def tower(dims, last_linear):
    layers = []
    for i, (a, b) in enumerate(itertools.pairwise(dims)):
        layers.append(nn.Linear(a, b))
        if not (last_linear and i == len(dims) - 2):
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)


class SpectraCoder(nn.Module):
    def __init__(self, n_bands, hidden=48, code=6, depth=5):
        super().__init__()
        dims = [n_bands] + [hidden] * depth + [code]
        self.encode = tower(dims, last_linear=False)
        self.decode = tower(dims[::-1], last_linear=True)

    def forward(self, x):
        return self.decode(self.encode(x))


def leaf_reflectance(n=384, n_bands=64, seed=0):
    rng = np.random.default_rng(seed)
    wl = np.linspace(0.4, 1.1, n_bands)
    chlorophyll = rng.uniform(0.2, 1.0, (n, 1))
    water = rng.uniform(0.1, 0.8, (n, 1))
    structure = rng.uniform(0.8, 1.2, (n, 1))
    edge = 1 / (1 + np.exp(-(wl - 0.70 - 0.02 * chlorophyll) / 0.015))
    green = 0.12 * np.exp(-(((wl - 0.55) / 0.03) ** 2)) * (1.2 - chlorophyll)
    dip = 0.15 * water * np.exp(-(((wl - 0.97) / 0.03) ** 2))
    refl = structure * (0.45 * edge + green - dip) + rng.normal(0, 0.004, (n, n_bands))
    refl = (refl - refl.mean(0)) / refl.std(0)
    return torch.from_numpy(refl).float()


def run_epoch(model, x, opt, batch=64):
    total = 0.0
    for idx in torch.randperm(len(x)).split(batch):
        recon = model(x[idx])
        loss = nn.functional.mse_loss(recon, x[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
    return total / len(x)


def main():
    torch.manual_seed(19)
    x = leaf_reflectance()
    model = SpectraCoder(x.shape[1])
    model.apply(weights_init)
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(25):
        mse = run_epoch(model, x, opt)
        if epoch % 4 == 0:
            print(f"epoch {epoch:2d} reconstruction mse {mse:.5f}")


if __name__ == "__main__":
    main()
