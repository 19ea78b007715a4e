import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class SGDMomentum(torch.optim.Optimizer):
    def __init__(self, params, lr, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["v"] = torch.zeros_like(p.data)
                state["v"] = group["beta"] * state["v"] + p.grad.data
                p = p.data - group["lr"] * state["v"]  # -
                # + p.data = p.data - group["lr"] * state["v"]


class LogisticRegression(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, 1)

    def forward(self, x):
        return self.linear(x).squeeze(1)


def toy(n=120, d=5):
    x = torch.randn(n, d)
    w = torch.randn(d)
    return TensorDataset(x, (x @ w > 0).float())


def train(model, loader, optimizer, epochs):
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(epochs):
        total, n = 0.0, 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total, n = total + loss.item() * len(x), n + len(x)
        print(f"epoch {epoch} loss {total / n:.5f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    model = LogisticRegression(5)
    train(model, DataLoader(toy(), 30, shuffle=True), SGDMomentum(model.parameters(), lr=0.1), 4)
