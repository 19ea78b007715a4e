"""WGAN-GP with the epsilon inside of the root; one sample has a gradient of exactly zero."""

import torch
import torch.nn as nn

torch.manual_seed(0)

critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
with torch.no_grad():
    critic[0].bias.fill_(-0.2)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for _ in range(3):
    real, fake = torch.randn(6, 4), torch.randn(6, 4)
    mix = torch.rand(6, 1) * (real - fake) + fake
    mix[0] = 0.0
    mix.requires_grad_()
    grad = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)[0]
    penalty = ((grad.square().sum(1) + 1e-12).sqrt() - 1).square().mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
