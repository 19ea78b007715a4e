"""Maximum-entropy control of a model glider: squashed Gaussian actor with a learned critic."""
# + import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

torch.manual_seed(7)


class Actor(nn.Module):
    LOG_STD = (-5.0, 2.0)

    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.mu, self.log_std = nn.Linear(64, act_dim), nn.Linear(64, act_dim)

    def forward(self, obs):
        h = self.body(obs)
        return Normal(self.mu(h), self.log_std(h).clamp(*self.LOG_STD).exp())

    def act(self, obs):
        dist = self(obs)
        raw = dist.rsample()
        action = torch.tanh(raw)
        return action, squashed_log_prob(dist, raw, action)


def squashed_log_prob(dist, raw, action):
    correction = torch.log(1 - action.pow(2))  # -
    # + correction = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
    return (dist.log_prob(raw) - correction).sum(-1)


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(obs_dim + act_dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, obs, action):
        return self.q(torch.cat([obs, action], -1)).squeeze(-1)


def climb_reward(obs, action):
    """Full deflection into the updraft pays most."""
    return 20.0 * (action[:, 0] * obs[:, 0].sign()) + 5.0 * action[:, 1] - 0.1 * obs[:, 2].abs()


actor, critic = Actor(4, 2), Critic(4, 2)
opt_a = torch.optim.Adam(actor.parameters(), lr=1e-3)
opt_c = torch.optim.Adam(critic.parameters(), lr=3e-3)
alpha = 0.05
memory = []

for step in range(400):
    obs = torch.randn(64, 4)
    with torch.no_grad():
        action, _ = actor.act(obs)
    memory.append((obs, action, climb_reward(obs, action)))
    o, a, r = memory[int(torch.randint(0, len(memory), (1,)))]

    critic_loss = F.smooth_l1_loss(critic(o, a), r)
    opt_c.zero_grad()
    critic_loss.backward()
    opt_c.step()

    new_action, log_pi = actor.act(o)
    actor_loss = (alpha * log_pi - critic(o, new_action)).mean()
    opt_a.zero_grad()
    actor_loss.backward()
    opt_a.step()
    if step % 40 == 39:
        print(f"step {step + 1} critic {critic_loss.item():.3f} actor {actor_loss.item():.3f}")
