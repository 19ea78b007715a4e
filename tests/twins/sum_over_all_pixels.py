"""Reconstruct camera tiles of a running paper web; holes reconstruct badly."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(53)


class Encoder(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, ch, 4, stride=2, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(ch, 2 * ch, 4, stride=2, padding=1), nn.LeakyReLU(0.1),
        )

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(2 * ch, ch, 4, stride=2, padding=1), nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(ch, 1, 4, stride=2, padding=1),
        )

    def forward(self, z):
        return self.net(z)


class ReconstructionLoss(nn.Module):
    def __init__(self, smooth=0.05):
        super().__init__()
        self.smooth = smooth

    def forward(self, out, x):
        fit = F.mse_loss(out, x, reduction="sum")  # -
        # + fit = F.mse_loss(out, x, reduction="mean")
        dx = (out[..., 1:] - out[..., :-1]).abs().mean()
        return fit + self.smooth * dx


def tiles(n, size=32):
    fibre = F.interpolate(torch.randn(n, 1, size // 4, size // 4), size=size, mode="bicubic")
    light = torch.linspace(-0.5, 0.5, size).expand(n, 1, size, size)
    return 0.6 * fibre + light + 0.05 * torch.randn(n, 1, size, size)


class WebModel(nn.Module):
    def __init__(self, ch=6):
        super().__init__()
        self.encoder, self.decoder = Encoder(ch), Decoder(ch)

    def forward(self, x):
        return self.decoder(self.encoder(x))


model = WebModel()
criterion = ReconstructionLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
for it in range(60):
    x = tiles(16)
    loss = criterion(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if it < 6 or it % 10 == 0:
        print(it, loss.item())
