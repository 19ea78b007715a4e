# symptom: inf-loss
# phase: forward
# op: log
# cause: log-zero
# fix: stable-op
"""Non-saturating generator loss written as -log(sigmoid(d)); d falls step by step."""

import itertools

import torch
import torch.nn as nn

torch.manual_seed(0)


def mlp(*sizes):
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


generator, discriminator = mlp(2, 16, 2), mlp(2, 32, 1)
opt_d = torch.optim.SGD(discriminator.parameters(), lr=0.05)
real = torch.randn(32, 2) + 60.0


def generator_loss(fake):
    return -torch.log(torch.sigmoid(discriminator(fake))).mean()  # <- culprit


for step in range(8):
    fake = generator(torch.randn(32, 2))
    d_loss = (discriminator(fake.detach()) - discriminator(real)).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    bias = discriminator[-1].bias
    with torch.no_grad():
        bias -= 30.0
    g_loss = generator_loss(fake)
    generator.zero_grad()
    g_loss.backward()
    print(step, d_loss.item(), g_loss.item())
