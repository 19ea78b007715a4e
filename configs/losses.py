"""What the sample configurations check: two losses, a model, its loss and its batch."""

import torch
import torch.nn.functional as F
from torch import nn


def focal(logits, labels, gamma=2.0):
    """Focal loss from logits: https://arxiv.org/abs/1708.02002"""
    cross_entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    miss = (labels - torch.sigmoid(logits)).abs()
    return (miss**gamma * cross_entropy).mean()


def distance_to_centre(points):
    """How far points are from their mean, on average; safe where one lies on it."""
    gap = points - points.mean(0, keepdim=True)
    return gap.square().sum(-1).clamp_min(1e-12).sqrt().mean()


class Classifier(nn.Module):
    def __init__(self, features=16, classes=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, classes)
        )

    def forward(self, x):
        return self.layers(x)


def batch(size=8, features=16, classes=4):
    torch.manual_seed(0)
    return torch.randn(size, features), torch.randint(classes, (size,))
