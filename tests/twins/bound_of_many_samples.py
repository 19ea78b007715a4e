"""IWAE bound: log of the mean of exp of log weights, high-dimensional likelihood."""
import math
import torch
from torch import nn


def log_normal(x, mu, logvar):
    return -0.5 * ((x - mu) ** 2 / logvar.exp() + logvar + math.log(2 * math.pi)).sum(-1)


class VAE(nn.Module):
    def __init__(self, d=200, z=4):
        super().__init__()
        self.enc, self.dec = nn.Linear(d, 2 * z), nn.Linear(z, d)

    def forward(self, x, k=5):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + (0.5 * logvar).exp() * torch.randn(k, *mu.shape)
        log_w = log_normal(x, self.dec(z), torch.zeros(())) + log_normal(z, torch.zeros(()), torch.zeros(())) - log_normal(z, mu, logvar)
        return log_w


def iwae(log_w):
    w = torch.exp(log_w)  # -
    return -torch.log(w.mean(0)).mean()  # -
    # + return -(torch.logsumexp(log_w, 0) - math.log(log_w.size(0))).mean()


torch.manual_seed(0)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
x = torch.randn(8, 200)
for step in range(3):
    loss = iwae(vae(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
