import torch
import torch.nn as nn
import torch.nn.functional as F


class UNetLite(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.enc = nn.Conv2d(1, c, 3, padding=1)
        self.dec = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x):
        return torch.tanh(self.dec(F.leaky_relu(self.enc(x), 0.2)))


class PatchD(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(2, c, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(c, 1, 3, 1, 1)
        )

    def forward(self, x):
        return self.model(x)


def set_requires_grad(nets, requires_grad=False):
    for net in nets if isinstance(nets, list) else [nets]:
        for p in net.parameters():
            p.requires_grad = requires_grad


class Pix2Pix:
    def __init__(self, lambda_l1=10.0):
        self.G, self.D = UNetLite(), PatchD()
        self.lambda_l1 = lambda_l1
        self.opt_G = torch.optim.Adam(self.G.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.opt_D = torch.optim.Adam(self.D.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def gan_loss(self, pred, real):
        return F.mse_loss(pred, torch.full_like(pred, float(real)))

    def backward_D(self):
        fake = self.D(torch.cat((self.A, self.fake_B.detach()), 1))
        real = self.D(torch.cat((self.A, self.B), 1))
        self.loss_D = 0.5 * (self.gan_loss(fake, False) + self.gan_loss(real, True))
        self.loss_D.backward()

    def backward_G(self):
        pred = self.D(torch.cat((self.A, self.fake_B), 1))
        self.loss_G = self.gan_loss(pred, True) + self.lambda_l1 * F.l1_loss(self.fake_B, self.B)
        self.loss_G.backward()

    def optimize_parameters(self, A, B):
        self.A, self.B = A, B
        self.fake_B = self.G(A)
        # + set_requires_grad(self.D, True)
        self.opt_D.zero_grad()
        self.backward_D()
        self.opt_D.step()
        set_requires_grad(self.D, False)
        self.opt_G.zero_grad()
        self.backward_G()
        self.opt_G.step()
        return self.loss_D.item(), self.loss_G.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    A = torch.rand(32, 1, 8, 8) * 2 - 1
    B = -A.flip(-1)
    model = Pix2Pix()
    for epoch in range(3):
        for i in range(0, 32, 8):
            d, g = model.optimize_parameters(A[i : i + 8], B[i : i + 8])
        print(f"epoch {epoch} D {d:.4f} G {g:.4f}")
