import torch
import torch.nn as nn

torch.manual_seed(0)


class OT(nn.Module):
    def __init__(self, reg=0.002, n_iter=30):
        super().__init__()
        self.reg, self.n_iter = reg, n_iter

    def forward(self, x, y):
        C = ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)
        mu = torch.full((x.size(0), 1), 1.0 / x.size(0))  # -
        nu = torch.full((y.size(0), 1), 1.0 / y.size(0))  # -
        K = torch.exp(-C / self.reg)  # -
        b = torch.ones_like(nu)  # -
        # + mu = torch.full((x.size(0),), 1.0 / x.size(0)).log()
        # + nu = torch.full((y.size(0),), 1.0 / y.size(0)).log()
        # + M = -C / self.reg
        # + g = torch.zeros_like(nu)
        for _ in range(self.n_iter):
            a = mu / torch.matmul(K, b)  # -
            b = nu / torch.matmul(K.t(), a)  # -
        P = torch.diag(a.squeeze(1)) @ K @ torch.diag(b.squeeze(1))  # -
            # + f = mu - torch.logsumexp(M + g[None, :], dim=1)
            # + g = nu - torch.logsumexp(M + f[:, None], dim=0)
        # + P = torch.exp(f[:, None] + M + g[None, :])
        return (P * C).sum()


x = torch.randn(6, 3, requires_grad=True)
loss = OT()(x, torch.randn(5, 3))
loss.backward()
