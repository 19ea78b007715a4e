"""Conditional diffusion on two swiss rolls in half precision with loss scaling."""

import copy
import math

import torch
import torch.nn as nn

torch.manual_seed(4)

T = 50
DROP_LABEL = 0.15
NULL = 2


def cosine_alphas(steps, s=0.008):
    t = torch.linspace(0, 1, steps + 1)
    f = torch.cos((t + s) / (1 + s) * math.pi / 2) ** 2
    beta = (1 - f[1:] / f[:-1]).clamp(max=0.999)
    return (1 - beta).cumprod(0)


def rolls(n):
    label = torch.randint(0, 2, (n,))
    u = 1.5 * math.pi * (1 + torch.rand(n))
    xy = torch.stack([u * u.cos(), u * u.sin()], 1) / 5
    xy = torch.where(label[:, None] == 1, -xy, xy)
    return xy + 0.03 * torch.randn(n, 2), label


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d, elementwise_affine=False)
        self.mod = nn.Linear(d, 3 * d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))
        nn.init.zeros_(self.mod.weight)
        nn.init.zeros_(self.mod.bias)

    def forward(self, h, c):
        shift, scale, gate = self.mod(c).chunk(3, 1)
        return h + gate * self.ff(self.norm(h) * (1 + scale) + shift)


class Denoiser(nn.Module):
    def __init__(self, d=48, depth=2):
        super().__init__()
        self.inp = nn.Linear(2, d)
        self.time = nn.Sequential(nn.Linear(16, d), nn.SiLU())
        self.label = nn.Embedding(3, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.out = nn.Linear(d, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(100), 8)))

    def forward(self, x, t, y):
        ang = t[:, None] / T * self.freq
        c = self.time(torch.cat([ang.sin(), ang.cos()], 1)) + self.label(y)
        h = self.inp(x)
        for b in self.blocks:
            h = b(h, c)
        return self.out(h)


class Diffusion:
    def __init__(self):
        self.abar = cosine_alphas(T)
        snr = self.abar / (1 - self.abar)
        self.weight = snr.clamp(max=5.0) / (snr + 1)  # v-prediction, min-SNR-5

    def loss(self, net, x0, y):
        t = torch.randint(0, T, (len(x0),))
        a = self.abar[t].sqrt()[:, None]
        s = (1 - self.abar[t]).sqrt()[:, None]
        noise = torch.randn_like(x0)
        y = torch.where(torch.rand(len(y)) < DROP_LABEL, torch.full_like(y, NULL), y)
        with torch.autocast("cpu", dtype=torch.float16):
            v = net(a * x0 + s * noise, t, y)
        err = (v.float() - (a * noise - s * x0)).pow(2).mean(1)
        return (self.weight[t] * err).mean()

    @torch.no_grad()
    def sample(self, net, y, guidance=1.0):
        x = torch.randn(len(y), 2)
        for i in reversed(range(T)):
            t = torch.full((len(y),), i)
            vc, vu = net(x, t, y), net(x, t, torch.full_like(y, NULL))
            v = vu + (1 + guidance) * (vc - vu)
            a, s = self.abar[i].sqrt(), (1 - self.abar[i]).sqrt()
            x0, eps = a * x - s * v, s * x + a * v
            prev = self.abar[i - 1] if i else torch.ones(())
            x = prev.sqrt() * x0 + (1 - prev).sqrt() * eps
        return x


def validate(diff, net, data, seed=0):
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        return diff.loss(net, *data).item()


def main(steps=150, batch=256):
    diff, net = Diffusion(), Denoiser()
    held_out = rolls(1000)
    ema = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26, growth_interval=40)
    for step in range(steps):
        loss = diff.loss(net, *rolls(batch))
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), net.parameters()):
                e.lerp_(p, 0.05)
        if step % 15 == 0 or step == steps - 1:
            print(
                f"{step:4d} loss {loss.item():.4f} val {validate(diff, net, held_out):.4f} scale 2^{math.log2(scaler.get_scale()):.0f}"
            )
    real, label = rolls(300)
    fake = diff.sample(ema, label)
    print(
        f"noise: mean distance to data {torch.cdist(torch.randn(300, 2), real).min(1).values.mean():.3f}"
    )
    for k in (0, 1):
        print(
            f"class {k}: mean distance to data {torch.cdist(fake[label == k], real[label == k]).min(1).values.mean():.3f}"
        )


if __name__ == "__main__":
    main()
