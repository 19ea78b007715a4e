"""Fit a Gaussian process to a drifting temperature sensor by maximising the marginal likelihood."""

import math

import numpy as np
import torch


class RBFKernel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log_length = torch.nn.Parameter(torch.tensor(0.0))
        self.log_amp = torch.nn.Parameter(torch.tensor(0.0))

    def forward(self, a, b):
        d2 = (a[:, None] - b[None, :]).pow(2) / self.log_length.exp().pow(2)
        return self.log_amp.exp().pow(2) * torch.exp(-0.5 * d2)


class ExactGP(torch.nn.Module):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
        self.kernel = RBFKernel()
        self.noise = torch.nn.Parameter(torch.tensor(0.3))  # -
        # + self.log_noise = torch.nn.Parameter(torch.tensor(0.3).log())

    def noise_variance(self):
        return self.noise  # -
        # + return self.log_noise.exp()

    def covariance(self):
        n = len(self.x)
        return self.kernel(self.x, self.x) + self.noise_variance() * torch.eye(n)

    def neg_log_marginal(self):
        L = torch.linalg.cholesky(self.covariance())
        alpha = torch.cholesky_solve(self.y[:, None], L).squeeze(-1)
        fit = 0.5 * self.y @ alpha
        logdet = L.diagonal().log().sum()
        return (fit + logdet + 0.5 * len(self.y) * math.log(2 * math.pi)) / len(self.y)

    @torch.no_grad()
    def predict(self, xs):
        L = torch.linalg.cholesky(self.covariance())
        alpha = torch.cholesky_solve(self.y[:, None], L)
        return (self.kernel(xs, self.x) @ alpha).squeeze(-1)


def load_sensor(n=60):
    rng = np.random.default_rng(8)
    hours = np.sort(rng.uniform(0, 6, n))
    temp = np.sin(hours) + 0.3 * np.cos(3 * hours) + 0.05 * rng.normal(size=n)
    temp = (temp - temp.mean()) / temp.std()
    return torch.tensor(hours, dtype=torch.float32), torch.tensor(temp, dtype=torch.float32)


def optimise(model, iters=100, lr=0.02):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    for i in range(iters):
        opt.zero_grad()
        nll = model.neg_log_marginal()
        nll.backward()
        opt.step()
        if i % 10 == 0 or i == iters - 1:
            print(
                f"iter {i:3d} nll {nll.item():+.4f} "
                f"length {model.kernel.log_length.exp().item():.3f} "
                f"noise {model.noise_variance().item():.4f}"
            )


def main():
    torch.manual_seed(0)
    x, y = load_sensor()
    gp = ExactGP(x, y)
    optimise(gp)
    print("train rmse", (gp.predict(x) - y).pow(2).mean().sqrt().item())


if __name__ == "__main__":
    main()
