"""A generator's loss that holds the critic's score of real data, to be printed."""

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
og = torch.optim.RMSprop(G.parameters(), lr=1e-3)
od = torch.optim.RMSprop(D.parameters(), lr=1e-3)
for i in range(8):
    real = torch.randn(32, 2) + 2
    fake = G(torch.randn(32, 4))
    d_loss = D(fake.detach()).mean() - D(real).mean()
    od.zero_grad()
    d_loss.backward()
    od.step()
    for p in D.parameters():
        p.data.clamp_(-0.1, 0.1)
    with torch.no_grad():
        real_score = D(real).mean()
    g_loss = real_score - D(G(torch.randn(32, 4))).mean()
    og.zero_grad()
    g_loss.backward()
    og.step()
    print(g_loss.item())
