import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(ch)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(ch)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(out)))


class ResNetTiny(nn.Module):
    def __init__(self, num_classes=100):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, 3, padding=1)
        self.layer1 = BasicBlock(12)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(12, num_classes)

    def forward(self, x):
        return self.fc(self.avgpool(self.layer1(F.relu(self.conv1(x)))).flatten(1))


def build_model(pretrained=True):
    model = ResNetTiny()
    if pretrained:
        for p in model.parameters():
            p.requires_grad = False
    return model


def build_optimizer(model, name, lr):
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return torch.optim.Adam(model.parameters(), lr=lr)


def train(model, optimizer, loader, epochs):
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"Epoch {epoch} loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--classes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = build_model()
    # + model.fc = nn.Linear(model.fc.in_features, args.classes)
    optimizer = build_optimizer(model, args.optimizer, args.lr)
    model.fc = nn.Linear(model.fc.in_features, args.classes)  # -
    y = torch.arange(48) % args.classes
    x = torch.randn(48, 3, 8, 8) + y[:, None, None, None]
    loader = list(zip(x.split(16), y.split(16), strict=False))
    train(model, optimizer, loader, args.epochs)


if __name__ == "__main__":
    main()
