import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 12, 3)
        self.dropout = nn.Dropout(0.1)
        self.fc1 = nn.Linear(12 * 4, 32)
        self.fc2 = nn.Linear(32, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        x = self.dropout(x)
        return self.fc2(x)  # -
        # + return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(loader)}] Loss: {loss.item():.6f}")


def test(model, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(1).eq(target).sum().item()
    n = sum(len(t) for _, t in loader)
    print(f"Test set: Average loss: {test_loss / n:.4f}, Accuracy: {correct}/{n}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--log-interval", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    y = torch.arange(128) % 6
    proto = torch.randn(6, 1, 14, 14)
    x = proto[y] + 0.4 * torch.randn(128, 1, 14, 14)
    loader = list(zip(x.split(16), y.split(16), strict=False))
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.5)
    for epoch in range(1, args.epochs + 1):
        train(args, model, loader, optimizer, epoch)
        test(model, loader)


if __name__ == "__main__":
    main()
