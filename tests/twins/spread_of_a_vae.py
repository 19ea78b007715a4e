import torch
import torch.nn as nn

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(30, 32)
        self.mu = nn.Linear(32, 4)
        self.sigma = nn.Linear(32, 4)
        self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 30))

    def forward(self, x):
        h = torch.relu(self.enc(x))
        mu, sigma = self.mu(h), torch.relu(self.sigma(h))  # -
        # + mu, sigma = self.mu(h), nn.functional.softplus(self.sigma(h))
        z = mu + sigma * torch.randn_like(mu)
        return self.dec(z), mu, sigma


def elbo(recon, x, mu, sigma):
    rec = ((recon - x) ** 2).sum(1)
    kl = 0.5 * (mu**2 + sigma**2 - torch.log(sigma**2) - 1).sum(1)
    return (rec + kl).mean()


net = VAE()
opt = torch.optim.Adam(net.parameters(), 1e-3)
x = torch.rand(16, 30)
for _ in range(2):
    recon, mu, sigma = net(x)
    loss = elbo(recon, x, mu, sigma)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
