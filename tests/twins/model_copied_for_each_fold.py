import copy

import torch
import torch.nn as nn

torch.manual_seed(5)


class Net(nn.Module):
    def __init__(self, d, h=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, h), nn.SiLU(), nn.Dropout(0.1), nn.Linear(h, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def kfold(n, k):
    perm = torch.randperm(n)
    folds = perm.chunk(k)
    for i in range(k):
        train = torch.cat([f for j, f in enumerate(folds) if j != i])
        yield train, folds[i]


def fit(model, optimizer, criterion, x, y, epochs=10, batch=32):
    model.train()
    for _ in range(epochs):
        for idx in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            loss = criterion(model(x[idx]), y[idx])
            loss.backward()
            optimizer.step()
    return loss.item()


@torch.no_grad()
def score(model, x, y):
    model.eval()
    return 1 - (model(x) - y).pow(2).mean() / y.var()


def main():
    x = torch.randn(160, 6)
    y = x[:, 0] * 1.5 - x[:, 1] + 0.3 * x[:, 2] ** 2
    initial = Net(6)
    optimizer = torch.optim.Adam(initial.parameters(), lr=1e-2)  # -
    criterion = nn.MSELoss()
    results = []
    for fold, (tr, va) in enumerate(kfold(len(x), 3)):
        model = copy.deepcopy(initial)
        # + optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        loss = fit(model, optimizer, criterion, x[tr], y[tr])
        results.append(score(model, x[va], y[va]).item())
        print(f"fold {fold}: train loss {loss:.4f} r2 {results[-1]:.3f}")
    print("mean r2", sum(results) / len(results))


if __name__ == "__main__":
    main()
