import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class LeafBackbone(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.out_channels = width

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return torch.cat([x.mean((2, 3)), x.amax((2, 3))], dim=1)


class LeafNet(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.backbone = LeafBackbone()
        self.head = nn.Linear(2 * self.backbone.out_channels, num_classes)

    def forward(self, x):
        return self.head(self.backbone(x))


class FineTuner:
    def __init__(self, model, num_classes, lr):
        self.model = model
        self.criterion = nn.CrossEntropyLoss()
        for p in self.model.backbone.parameters():
            p.requires_grad = False
        # + self.adapt_head(num_classes)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.adapt_head(num_classes)  # -

    def adapt_head(self, num_classes):
        in_features = self.model.head.in_features
        self.model.head = nn.Linear(in_features, num_classes)

    def run_epoch(self, loader):
        self.model.train()
        loss_sum, correct, seen = 0.0, 0, 0
        for images, labels in loader:
            logits = self.model(images)
            loss = self.criterion(logits, labels)
            self.model.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss_sum += loss.item() * images.size(0)
            correct += (logits.argmax(1) == labels).sum().item()
            seen += images.size(0)
        return loss_sum / seen, correct / seen


def synthetic_leaves(n, size=12):
    """healthy / yellowing / spotted leaves"""
    labels = torch.randint(0, 3, (n,))
    images = torch.rand(n, 3, size, size) * 0.3
    images[:, 1] += 0.5
    images[labels == 1, 0] += 0.35
    for i in torch.nonzero(labels == 2).flatten():
        rows, cols = torch.randint(0, size, (2, 10))
        images[i, :, rows, cols] *= 0.1
    return images, labels


def main():
    torch.manual_seed(31)
    loader = DataLoader(TensorDataset(*synthetic_leaves(480)), batch_size=32, shuffle=True)
    tuner = FineTuner(LeafNet(), num_classes=3, lr=5e-2)
    for epoch in range(8):
        loss, acc = tuner.run_epoch(loader)
        print(f"Epoch {epoch + 1}/8 - loss: {loss:.4f} - acc: {acc:.3f}")


if __name__ == "__main__":
    main()
