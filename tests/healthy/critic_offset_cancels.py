import torch
import torch.nn as nn

torch.manual_seed(0)


class Offset(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.value


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1, bias=False))
        self.offset = Offset()

    def forward(self, x):
        return self.offset(self.body(x))


critic, ranker = Critic(), Critic()
optimizer = torch.optim.Adam([*critic.parameters(), *ranker.parameters()], lr=1e-4)
for _ in range(8):
    real, fake = 0.1 * torch.randn(16, 2), 0.1 * torch.randn(16, 2)
    hinge = torch.relu(1 - critic(real)).mean() + torch.relu(1 + critic(fake)).mean()
    scores = ranker(torch.cat([real, fake]))
    loss = (
        hinge + torch.relu(1 - torch.cat([torch.ones(16, 1), -torch.ones(16, 1)]) * scores).mean()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
