import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class ConvNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(2, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(4)
        )
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(self.body(x).flatten(1))


class Trainer:
    def __init__(self, model, train_loader, val_loader, lr):
        self.model, self.train_loader, self.val_loader = model, train_loader, val_loader
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.history = []

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train_loader)

    # + @torch.no_grad()
    def validate(self):
        self.model.eval()
        torch.set_grad_enabled(False)  # -
        correct = total = 0
        for x, y in self.val_loader:
            correct += (self.model(x).argmax(1) == y).sum().item()
            total += len(y)
        return correct / total

    def fit(self, epochs):
        for epoch in range(epochs):
            loss = self.train_epoch()
            acc = self.validate()
            self.history.append((loss, acc))
            print(f"epoch {epoch}: loss {loss:.4f} val acc {acc:.3f}")


def signals(n=120, length=32):
    y = torch.randint(0, 3, (n,))
    t = torch.linspace(0, 1, length)
    wave = torch.sin(2 * torch.pi * (y[:, None] + 1) * 2 * t + torch.rand(n, 1))
    return TensorDataset(torch.stack((wave, wave.cos()), 1) + 0.1 * torch.randn(n, 2, length), y)


if __name__ == "__main__":
    torch.manual_seed(0)
    train_set, val_set = random_split(signals(), [96, 24])
    trainer = Trainer(
        ConvNet(), DataLoader(train_set, 16, shuffle=True), DataLoader(val_set, 24), lr=1e-2
    )
    trainer.fit(3)
