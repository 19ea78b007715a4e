"""Reservoir levels below their mean: a small network predicts tomorrow's deviation of each gauge."""

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, widths, activation=nn.ReLU, norm=True):
        super().__init__()
        parts = [nn.LayerNorm(widths[0])] if norm else []
        for index in range(len(widths) - 1):
            parts.append(nn.Linear(widths[index], widths[index + 1]))
            parts.append(activation())
        self.net = nn.Sequential(*parts)  # -
        # + self.net = nn.Sequential(*parts[:-1])

    def forward(self, levels):
        return self.net(levels)


class Gauges:
    def __init__(self, count, drift):
        self.count, self.drift = count, drift
        self.mixing = torch.randn(count, count) / count**0.5

    def batch(self, size):
        today = torch.randn(size, self.count)
        noise = 0.1 * torch.randn(size, self.count)
        return today, torch.tanh(today @ self.mixing) - self.drift + noise


def fit(model, gauges, steps):
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    criterion = nn.HuberLoss()
    for step in range(steps):
        today, tomorrow = gauges.batch(48)
        loss = criterion(model(today), tomorrow)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(3)
    fit(Head([6, 24, 6]), Gauges(6, drift=2.0), 40)
