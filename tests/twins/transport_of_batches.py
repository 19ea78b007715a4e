"""Entropic OT between histograms (Sinkhorn layer) inside a matching network."""
import torch
from torch import nn


class Sinkhorn(nn.Module):
    def __init__(self, eps=0.01, iters=20):
        super().__init__()
        self.eps, self.iters = eps, iters

    def forward(self, cost, a, b):
        K = torch.exp(-cost / self.eps)  # -
        u = torch.ones_like(a)  # -
        # + K = -cost / self.eps
        # + u = torch.zeros_like(a)
        for _ in range(self.iters):
            v = b / (K.transpose(-1, -2) @ u.unsqueeze(-1)).squeeze(-1)  # -
            u = a / (K @ v.unsqueeze(-1)).squeeze(-1)  # -
            # + v = b.log() - (K.transpose(-1, -2) + u.unsqueeze(-2)).logsumexp(-1)
            # + u = a.log() - (K + v.unsqueeze(-2)).logsumexp(-1)
        plan = u.unsqueeze(-1) * K * v.unsqueeze(-2)  # -
        # + plan = (u.unsqueeze(-1) + K + v.unsqueeze(-2)).exp()
        return (plan * cost).sum((-1, -2)), plan


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 8)
        self.ot = Sinkhorn()

    def forward(self, x, y):
        fx, fy = self.embed(x), self.embed(y)
        cost = torch.cdist(fx, fy) ** 2
        n, m = cost.shape[-2:]
        a = torch.full(cost.shape[:-1], 1.0 / n)
        b = torch.full((*cost.shape[:-2], m), 1.0 / m)
        return self.ot(cost, a, b)


torch.manual_seed(0)
model = Matcher()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for it in range(4):
    x, y = torch.randn(2, 6, 3), torch.randn(2, 7, 3)
    dist, _ = model(x, y)
    loss = dist.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())
