import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--niter", type=int, default=30)
parser.add_argument("--Dsteps", type=int, default=3)
parser.add_argument("--Gsteps", type=int, default=3)
parser.add_argument("--lr_g", type=float, default=1e-3)
parser.add_argument("--lr_d", type=float, default=1e-3)
parser.add_argument("--alpha", type=float, default=10.0)
parser.add_argument("--nfc", type=int, default=16)
parser.add_argument("--seed", type=int, default=5)


def conv_stack(c_out, nfc):
    layers, c = [], 1
    for _ in range(3):
        layers += [nn.Conv1d(c, nfc, 5, padding=2), nn.LeakyReLU(0.2)]
        c = nfc
    return nn.Sequential(*layers, nn.Conv1d(nfc, c_out, 5, padding=2))


class Generator(nn.Module):
    def __init__(self, nfc):
        super().__init__()
        self.body = conv_stack(1, nfc)

    def forward(self, noise, prev):
        return prev + self.body(noise + prev)


class PatchCritic(nn.Module):
    def __init__(self, nfc):
        super().__init__()
        self.body = conv_stack(1, nfc)

    def forward(self, x):
        return self.body(x)


def seismic_trace(n=96):
    t = torch.arange(n).float()
    trace = torch.zeros(n)
    for centre, amp in ((20, 1.0), (41, -0.7), (66, 0.5), (80, 0.8)):
        u = (math.pi * (t - centre) / 9) ** 2
        trace += amp * (1 - 2 * u) * torch.exp(-u)
    return trace.view(1, 1, n)


def hinge(real_score, fake_score):
    return torch.relu(1 - real_score).mean() + torch.relu(1 + fake_score).mean()


def train_single_scale(netG, netD, real, opt):
    opt_d = torch.optim.Adam(netD.parameters(), lr=opt.lr_d, betas=(0.5, 0.999))
    opt_g = torch.optim.Adam(netG.parameters(), lr=opt.lr_g, betas=(0.5, 0.999))
    mse = nn.MSELoss()
    prev = torch.zeros_like(real)
    z_opt = torch.randn_like(real)
    history = []

    for epoch in range(opt.niter):
        noise = torch.randn_like(real)

        for _ in range(opt.Dsteps):
            netD.zero_grad()
            fake = netG(noise, prev)
            errD = hinge(netD(real), netD(fake.detach()))
            errD.backward()
            opt_d.step()

        for _ in range(opt.Gsteps):
            netG.zero_grad()
            # + fake = netG(noise, prev)
            errG = -netD(fake).mean()
            errG.backward(retain_graph=True)  # -
            # + errG.backward()
            rec_loss = opt.alpha * mse(netG(z_opt, prev), real)
            rec_loss.backward()
            opt_g.step()

        history.append(rec_loss.item())
        if epoch % 5 == 0 or epoch == opt.niter - 1:
            print(
                f"scale 0:[{epoch}/{opt.niter}] errD {errD.item():.3f} errG {errG.item():.3f} rec {history[-1]:.4f}"
            )
    return history


if __name__ == "__main__":
    opt = parser.parse_args()
    torch.manual_seed(opt.seed)
    real = seismic_trace()
    train_single_scale(Generator(opt.nfc), PatchCritic(opt.nfc), real, opt)
