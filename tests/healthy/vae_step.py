import torch
import torch.nn as nn
from torch.distributions import Normal, kl_divergence

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 8))
        self.dec = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 20))

    def forward(self, x):
        mu, log_sigma = self.enc(x).chunk(2, -1)
        posterior = Normal(mu, log_sigma.clamp(-5, 3).exp())
        z = posterior.rsample()
        return self.dec(z), kl_divergence(posterior, Normal(0.0, 1.0)).sum(-1)


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(4):
    x = (torch.rand(8, 20) > 0.5).float()
    logits, kl = model(x)
    nll = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
    loss = (nll + kl).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
