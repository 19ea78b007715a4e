"""Office-style classifier with the annealing schedule (1 + gamma * p) ** -beta of the domain adaptation papers."""

import types

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR

args = types.SimpleNamespace(
    lr=0.01, lr_gamma=0.001, lr_decay=0.75, wd=1e-3, epochs=6, iters=40, batch=36, seed=2
)


def synthetic_office(n, n_classes, dim):
    proto = torch.randn(n_classes, dim)
    y = torch.randint(0, n_classes, (n,))
    return proto[y] + 0.7 * torch.randn(n, dim), y


class ImageClassifier(nn.Module):
    def __init__(self, dim, bottleneck, n_classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(dim, 64), nn.ReLU())
        self.bottleneck = nn.Sequential(
            nn.Linear(64, bottleneck), nn.BatchNorm1d(bottleneck), nn.ReLU()
        )
        self.head = nn.Linear(bottleneck, n_classes)

    def forward(self, x):
        return self.head(self.bottleneck(self.backbone(x)))

    def get_parameters(self):
        return [
            {"params": self.backbone.parameters(), "lr": 0.1 * args.lr},
            {"params": self.bottleneck.parameters(), "lr": args.lr},
            {"params": self.head.parameters(), "lr": args.lr},
        ]


def main():
    torch.manual_seed(args.seed)
    x, y = synthetic_office(800, 10, 24)
    classifier = ImageClassifier(24, 32, 10)
    optimizer = torch.optim.SGD(
        classifier.get_parameters(), lr=args.lr, momentum=0.9, weight_decay=args.wd, nesterov=True
    )
    lr_scheduler = LambdaLR(
        optimizer,
        lambda it: args.lr * (1.0 + args.lr_gamma * it) ** -args.lr_decay,  # -
        # + lambda it: (1.0 + args.lr_gamma * it) ** -args.lr_decay,
    )
    for epoch in range(args.epochs):
        meter, correct = 0.0, 0
        for _ in range(args.iters):
            rows = torch.randint(0, len(x), (args.batch,))
            logits = classifier(x[rows])
            loss = F.cross_entropy(logits, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
            meter += loss.item() / args.iters
            correct += (logits.argmax(1) == y[rows]).sum().item()
        print(f"Epoch {epoch}  Loss {meter:.4f}  Acc {100 * correct / args.iters / args.batch:.1f}")


main()
