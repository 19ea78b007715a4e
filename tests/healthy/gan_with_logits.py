import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)

generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
for _ in range(4):
    real, noise = torch.randn(16, 2) + 2, torch.randn(16, 4)
    fake = generator(noise)
    d_real, d_fake = critic(real), critic(fake.detach())
    d_loss = F.binary_cross_entropy_with_logits(d_real, torch.ones_like(d_real))
    d_loss = d_loss + F.binary_cross_entropy_with_logits(d_fake, torch.zeros_like(d_fake))
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()

    score = critic(fake)
    g_loss = F.binary_cross_entropy_with_logits(score, torch.ones_like(score))
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    print(d_loss.item(), g_loss.item())
