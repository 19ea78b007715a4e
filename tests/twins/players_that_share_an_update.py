import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class GAN:
    def __init__(self):
        self.G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 1))
        self.og = torch.optim.Adam(self.G.parameters(), 1e-3)
        self.od = torch.optim.Adam(self.D.parameters(), 1e-3)

    def update(self, loss, opt):
        # + opt.zero_grad()
        loss.backward()
        opt.step()

    def step(self, real):
        z = torch.randn(len(real), 4)
        fake = self.G(z)
        d = F.softplus(-self.D(real)).mean() + F.softplus(self.D(fake.detach())).mean()
        self.update(d, self.od)
        g = F.softplus(-self.D(fake)).mean()
        self.update(g, self.og)
        return d.item(), g.item()


gan = GAN()
for _step in range(20):
    gan.step(torch.randn(32, 2) + 2)
