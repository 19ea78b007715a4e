import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(31)

N_EXPERTS = 4


class Router(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, N_EXPERTS)

    def forward(self, x):
        probs = F.softmax(self.gate(x), dim=-1)
        weight, index = probs.max(dim=-1)
        return weight, index, probs


class ExpertBank(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.router = Router(dim)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, 24), nn.ReLU(), nn.Linear(24, out)) for _ in range(N_EXPERTS)])

    def forward(self, x):
        weight, index, probs = self.router(x)
        return weight, index, probs, [expert(x[index == e]) for e, expert in enumerate(self.experts)]


def bank_loss(outputs, target, weight, index):
    """Every expert counts alike."""
    per_expert = []
    for e, pred in enumerate(outputs):
        chosen = index == e
        # + if not chosen.any():
            # + continue
        err = F.mse_loss(pred, target[chosen], reduction="none").mean(-1)
        per_expert.append((weight[chosen] * err).mean())
    return torch.stack(per_expert).mean()


def z_loss(probs):
    return (probs.mean(0) - 1 / N_EXPERTS).pow(2).sum()


def parcels(n):
    depot = torch.multinomial(torch.tensor([0.4, 0.3, 0.2, 0.1]), n, replacement=True)
    x = torch.randn(n, 8) + 1.5 * F.one_hot(depot, 8)
    y = torch.stack([x[:, 0] * (depot + 1), x[:, 1] - depot], dim=-1)
    return x, y


model = ExpertBank(8, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(150):
    x, y = parcels(48)
    weight, index, probs, outputs = model(x)
    loss = bank_loss(outputs, y, weight, index) + 0.01 * z_loss(probs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        share = torch.bincount(index, minlength=N_EXPERTS).tolist()
        print(f"step {step:3d} loss {loss.item():.4f} share {share}")
print("done", loss.item())
