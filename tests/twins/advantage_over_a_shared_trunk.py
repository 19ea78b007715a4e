import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 32), nn.Tanh())
        self.pi = nn.Linear(32, 3)
        self.v = nn.Linear(32, 1)

    def forward(self, s):
        h = self.trunk(s)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


net = ActorCritic()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    s = torch.randn(32, 6)
    ret = torch.randn(32)
    dist, value = net(s)
    a = dist.sample()
    adv = ret - value  # -
    # + adv = ret - value.detach()
    actor_loss = -(dist.log_prob(a) * adv).mean()
    critic_loss = F.mse_loss(value, ret)
    opt.zero_grad()
    actor_loss.backward()  # -
    # + actor_loss.backward(retain_graph=True)
    critic_loss.backward()
    opt.step()
