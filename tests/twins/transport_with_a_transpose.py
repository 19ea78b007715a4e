import torch
import torch.nn as nn

torch.manual_seed(0)


class SinkhornDistance(nn.Module):
    def __init__(self, eps, iterations):
        super().__init__()
        self.eps = eps
        self.iterations = iterations

    def forward(self, x, y):
        cost = ((x.unsqueeze(1) - y.unsqueeze(0)) ** 2).sum(-1)
        mu = torch.full((len(x),), 1.0 / len(x))
        nu = torch.full((len(y),), 1.0 / len(y))
        K = torch.exp(-cost / self.eps)  # -
        u, v = torch.ones(len(x)), torch.ones(len(y))  # -
        for _ in range(self.iterations):  # -
            u = mu / torch.matmul(K, v)  # -
            v = nu / torch.matmul(K.T, u)  # -
        plan = torch.diag(u) @ K @ torch.diag(v)  # -
        # + M = -cost / self.eps
        # + f, g = torch.zeros(len(x)), torch.zeros(len(y))
        # + for _ in range(self.iterations):
        # +     f = mu.log() - torch.logsumexp(M + g, dim=1)
        # +     g = nu.log() - torch.logsumexp(M.T + f, dim=1)
        # + plan = torch.exp(f[:, None] + M + g)
        return torch.sum(plan * cost)


encoder = nn.Linear(4, 3)
x = torch.randn(8, 4)
y = torch.randn(8, 3)
criterion = SinkhornDistance(eps=0.02, iterations=20)
opt = torch.optim.Adam(encoder.parameters(), lr=1e-3)
for step in range(3):
    loss = criterion(encoder(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
