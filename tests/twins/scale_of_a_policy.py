import torch
from torch import nn
from torch.distributions import Normal


class Policy(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.mu = nn.Linear(obs, act)
        self.std = nn.Parameter(torch.full((act,), 0.1))  # -
        # + self.log_std = nn.Parameter(torch.full((act,), 0.1).log())

    def forward(self, x):
        return Normal(self.mu(x), self.std)  # -
        # + return Normal(self.mu(x), self.log_std.exp())


torch.manual_seed(0)
policy = Policy(3, 2)
opt = torch.optim.Adam(policy.parameters(), lr=0.05)
for _ in range(20):
    dist = policy(torch.randn(32, 3))
    a = dist.sample()
    adv = -(a ** 2).sum(1)
    loss = -(dist.log_prob(a).sum(1) * (adv - adv.mean())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
