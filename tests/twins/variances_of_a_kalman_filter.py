"""A linear Kalman filter that learns its two noises by the likelihood of its innovations."""
import math
import torch
from torch import nn


class Kalman(nn.Module):
    def __init__(self, dx=2, dy=1):
        super().__init__()
        self.A = nn.Parameter(torch.tensor([[1.0, 0.5], [0.0, 1.0]]))
        self.C = nn.Parameter(torch.tensor([[1.0, 0.0]]))
        self.q = nn.Parameter(torch.full((dx,), 0.02))  # -
        self.r = nn.Parameter(torch.full((dy,), 0.05))  # -
        # + self.log_q = nn.Parameter(torch.full((dx,), math.log(0.02)))
        # + self.log_r = nn.Parameter(torch.full((dy,), math.log(0.05)))

    def step(self, m, P, y):
        m = self.A @ m
        P = self.A @ P @ self.A.T + torch.diag(self.q)  # -
        S = self.C @ P @ self.C.T + torch.diag(self.r)  # -
        # + P = self.A @ P @ self.A.T + torch.diag(self.log_q.exp())
        # + S = self.C @ P @ self.C.T + torch.diag(self.log_r.exp())
        e = y - self.C @ m
        L = torch.linalg.cholesky(S)
        w = torch.linalg.solve_triangular(L, e[:, None], upper=False)[:, 0]
        ll = -0.5 * (w @ w) - L.diagonal().log().sum() - 0.5 * len(e) * math.log(2 * math.pi)
        K = P @ self.C.T @ torch.linalg.inv(S)
        return m + K @ e, P - K @ self.C @ P, ll

    def nll(self, ys):
        m, P, total = torch.zeros(2), torch.eye(2), 0.0
        for y in ys:
            m, P, ll = self.step(m, P, y)
            total = total + ll
        return -total / len(ys)


torch.manual_seed(0)
t = torch.arange(12.0)
ys = (0.1 * t + 0.01 * torch.randn(12))[:, None]
kf = Kalman()
opt = torch.optim.Adam(kf.parameters(), lr=0.03)
for it in range(6):
    loss = kf.nll(ys)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, round(loss.item(), 4))
