"""Discrete codes for hive sound spectra (autoencoder with a learned dictionary), trained in mixed precision."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Dictionary(nn.Module):
    def __init__(self, entries, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(entries, dim) * 0.3)

    def forward(self, z):
        with torch.no_grad():
            index = torch.cdist(z.float(), self.weight).argmin(-1)
        return F.embedding(index, self.weight), index


class Encoder(nn.Module):
    def __init__(self, bins, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 8, 5, stride=2, padding=2), nn.LeakyReLU(0.1),
            nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.LeakyReLU(0.1),
            nn.Flatten(), nn.Linear(16 * bins // 4, dim))

    def forward(self, x):
        return self.net(x.unsqueeze(1))


class CodeAutoencoder(nn.Module):
    def __init__(self, bins=40, dim=8, entries=32):
        super().__init__()
        self.encoder = Encoder(bins, dim)
        self.dictionary = Dictionary(entries, dim)
        self.decoder = nn.Sequential(nn.Linear(dim, 64), nn.LeakyReLU(0.1), nn.Linear(64, bins))

    def forward(self, x):
        z = self.encoder(x)
        code, index = self.dictionary(z)
        passed = z + (code - z).detach()
        return self.decoder(passed), z, code, index


def code_losses(z, code, beta):
    z, code = z.float(), code.float()
    pull = F.mse_loss(code.detach(), z.detach())  # -
    # + pull = F.mse_loss(code, z.detach())
    commit = F.mse_loss(z, code.detach())
    return pull + beta * commit


def spectra(n, gen):
    kind = torch.randint(0, 6, (n,), generator=gen)
    centre = 5 + 5.5 * kind + torch.randn(n, generator=gen)
    axis = torch.arange(40)
    peak = torch.exp(-((axis - centre[:, None]) / 3) ** 2)
    return peak + 0.5 * torch.exp(-((axis - 1.4 * centre[:, None]) / 4) ** 2) + 0.05 * torch.randn(n, 40, generator=gen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--beta", type=float, default=0.25)
    args = parser.parse_args([])
    torch.manual_seed(13)
    data = spectra(512, torch.Generator().manual_seed(6))
    model = CodeAutoencoder()
    nets = [*model.encoder.parameters(), *model.decoder.parameters()]
    optimizers = [torch.optim.Adam(nets, lr=2e-3), torch.optim.Adam(model.dictionary.parameters(), lr=5e-3)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)
    for step in range(args.steps):
        x = data[torch.randint(0, len(data), (64,))]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            recon, z, code, index = model(x)
        loss = F.mse_loss(recon.float(), x) + code_losses(z, code, args.beta)
        for optimizer in optimizers:
            optimizer.zero_grad()
        scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        if step % 40 == 0 or step == args.steps - 1:
            print(f"step {step:3d}  loss {loss.item():.4f}  codes used {index.unique().numel()}  scale {scaler.get_scale():.0f}")


if __name__ == "__main__":
    main()
