import torch
import torch.nn as nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(6, 4)
        self.dec = nn.Linear(2, 6)

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=-1)
        # + logvar = logvar.clamp(-10, 10)
        std = torch.exp(0.5 * logvar)
        z = mu + std * torch.randn_like(std)
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1)
        return self.dec(z), kld


torch.manual_seed(0)
vae = VAE()
x = torch.randn(8, 6) * 120
out, kld = vae(x)
loss = F.mse_loss(out, x) + 1e-3 * kld.mean()
loss.backward()
