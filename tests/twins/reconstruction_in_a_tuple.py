import torch
import torch.nn as nn
# + import torch.nn.functional as F

torch.manual_seed(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(10, 8)
        self.dec = nn.Linear(4, 10)

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=-1)
        std = torch.exp(0.5 * logvar)
        z = mu + std * torch.randn_like(std)
        return torch.sigmoid(self.dec(z)), mu, logvar  # -
        # + return self.dec(z), mu, logvar


def loss_fn(recon, x, mu, logvar):
    bce = -(x * torch.log(recon) + (1 - x) * torch.log(1 - recon)).sum(-1).mean()  # -
    # + bce = F.binary_cross_entropy_with_logits(recon, x, reduction="none").sum(-1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1).mean()
    return bce + kl


model = VAE()
with torch.no_grad():
    model.dec.weight.mul_(120)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
x = (torch.rand(16, 10) > 0.5).float()
for _ in range(3):
    opt.zero_grad()
    recon, mu, logvar = model(x)
    loss = loss_fn(recon, x, mu, logvar)
    loss.backward()
    opt.step()
