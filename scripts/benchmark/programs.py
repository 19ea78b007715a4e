"""The training steps that are timed: from 5 elements to a small transformer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], None]


def training_step(model: nn.Module, batch: torch.Tensor, target: torch.Tensor) -> Step:
    """Forward, cross entropy over the last dimension, backward, plain SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(batch)
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten())
        loss.backward()
        optimizer.step()

    return step


def transformer(device: str) -> Step:
    """6 blocks, d 256, batch 4 x 128."""
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(1000, 256),
        nn.TransformerEncoder(layer, 6, enable_nested_tensor=False),
        nn.Linear(256, 1000),
    ).to(device)
    tokens = torch.randint(1000, (4, 129), device=device)
    return training_step(model, tokens[:, :-1], tokens[:, 1:])


def mlp(device: str) -> Step:
    """20 layers of width 64, batch 32: hardly any arithmetic, so that our overhead shows."""
    blocks = [block for _ in range(20) for block in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*blocks).to(device)
    target = torch.randint(64, (32,), device=device)
    return training_step(model, torch.randn(32, 64, device=device), target)


def cnn(device: str) -> Step:
    """Three convolutions with batch norm over 32 images of 3 x 32 x 32."""
    widths = [(3, 32), (32, 64), (64, 128)]
    blocks = [
        nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU()) for i, o in widths
    ]
    model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(128 * 4 * 4, 10)).to(device)
    target = torch.randint(10, (32,), device=device)
    return training_step(model, torch.randn(32, 3, 32, 32, device=device), target)


def loss(device: str) -> Step:
    """The gamma loss on 5 elements, repaired: a few ops and no model."""
    x = torch.tensor([0.0, 0.0025, 0.5, 0.8, 1.0], device=device, requires_grad=True)

    def step() -> None:
        x.grad = None
        bright = x >= 0.003
        gamma = torch.where(bright, torch.where(bright, x, 1.0) ** 0.5, 12.9 * x)
        ((x - gamma) ** 2).mean().backward()

    return step


PROGRAMS: dict[str, Callable[[str], Step]] = {
    "transformer": transformer,
    "mlp": mlp,
    "cnn": cnn,
    "loss": loss,
}
