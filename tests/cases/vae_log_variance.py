# symptom: inf-loss
# phase: forward
# op: exp
# cause: overflow
# fix: clamp-domain
"""VAE on raw pixels in 0..255: the log-variance head starts far out."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self, pixels=64, latent=4):
        super().__init__()
        self.enc = nn.Linear(pixels, 2 * latent)
        self.dec = nn.Linear(latent, pixels)

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=-1)
        z = mu + torch.randn_like(mu) * 0.1
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1)  # <- culprit
        return self.dec(z), kl


images = torch.randint(0, 256, (16, 64)).float()
model = VAE()
recon, kl = model(images)
loss = nn.functional.mse_loss(recon, images) + kl.mean()
loss.backward()
print(loss.item())
