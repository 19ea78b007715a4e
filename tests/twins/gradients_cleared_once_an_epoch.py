import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Gen(nn.Module):
    def __init__(self, z=4, d=6):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(z, 24), nn.ReLU(), nn.Linear(24, d))
        self.z = z

    def forward(self, n):
        return self.f(torch.randn(n, self.z))


class Disc(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(d, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))

    def forward(self, x):
        return self.f(x)


def d_hinge(real, fake):
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


class Solver:
    def __init__(self, lr_g=1e-2, lr_d=2e-2):
        self.G, self.D = Gen(), Disc()
        self.optim_g = torch.optim.SGD(self.G.parameters(), lr=lr_g)
        self.optim_d = torch.optim.SGD(self.D.parameters(), lr=lr_d)

    def update_d(self, x):
        with torch.no_grad():
            fake = self.G(len(x))
        loss = d_hinge(self.D(x), self.D(fake))
        # + self.optim_d.zero_grad()
        loss.backward()
        self.optim_d.step()
        return loss.item()

    def update_g(self, n):
        self.optim_g.zero_grad()
        loss = -self.D(self.G(n)).mean()
        loss.backward()
        self.optim_g.step()
        return loss.item()

    def train(self, loader, epochs=3):
        for epoch in range(epochs):
            self.optim_d.zero_grad()  # -
            for x in loader:
                d = self.update_d(x)
                g = self.update_g(len(x))
            print(f"epoch {epoch} d {d:.4f} g {g:.4f}")


Solver().train((1.0 + 0.5 * torch.randn(160, 6)).split(20))
