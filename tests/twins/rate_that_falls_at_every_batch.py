"""Spiral vs elliptical on rendered postage stamps."""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR


@dataclass
class HParams:
    seed: int = 99
    n_train: int = 512
    size: int = 16
    batch_size: int = 16
    epochs: int = 6
    lr: float = 0.05
    momentum: float = 0.9
    lr_step: int = 3
    lr_gamma: float = 0.1


def render(n, size):
    ax = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    r = (xx**2 + yy**2).sqrt()
    phi = torch.atan2(yy, xx)
    labels = torch.randint(0, 2, (n,))
    stamps = []
    for k in labels.tolist():
        tilt = torch.rand(1).item() * math.pi
        glow = torch.exp(-3 * r)
        arms = (
            torch.exp(-2 * r) * (1 + torch.cos(2 * phi - 9 * r + tilt))
            if k
            else 1.4 * torch.exp(-2.5 * r)
        )
        stamps.append((glow + arms + 0.15 * torch.randn(size, size)).unsqueeze(0))
    return torch.stack(stamps), labels


class StampCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.fc = nn.Linear(16 * 4 * 4, 2)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def train_one_epoch(model, data, optimizer, scheduler, criterion, hp):
    images, labels = data
    model.train()
    losses = []
    for idx in torch.randperm(len(images)).split(hp.batch_size):
        optimizer.zero_grad()
        loss = criterion(model(images[idx]), labels[idx])
        loss.backward()
        optimizer.step()
        scheduler.step()  # -
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    hp = HParams()
    print(asdict(hp))
    torch.manual_seed(hp.seed)
    data = render(hp.n_train, hp.size)
    model = StampCNN()
    optimizer = SGD(model.parameters(), lr=hp.lr, momentum=hp.momentum)
    scheduler = StepLR(optimizer, step_size=hp.lr_step, gamma=hp.lr_gamma)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(hp.epochs):
        loss = train_one_epoch(model, data, optimizer, scheduler, criterion, hp)
        # + scheduler.step()
        print(f"[{epoch + 1}/{hp.epochs}] train loss {loss:.4f}")


if __name__ == "__main__":
    main()
