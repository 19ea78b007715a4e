import math
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "obs act rew nxt done")


def mlp(sizes, act=nn.ReLU):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            layers.append(act())
    return nn.Sequential(*layers)


class SquashedPolicy(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.net = mlp([obs_dim, 48, 48, 2 * act_dim])

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        std = log_std.clamp(-5, 2).exp()
        eps = torch.randn_like(mean)
        u = mean + std * eps
        a = torch.tanh(u)
        logp = (-0.5 * eps.pow(2) - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
        logp = logp - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
        return a, logp


class TwinQ(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.q1 = mlp([obs_dim + act_dim, 48, 48, 1])
        self.q2 = mlp([obs_dim + act_dim, 48, 48, 1])

    def forward(self, obs, act):
        x = torch.cat([obs, act], -1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class Agent:
    def __init__(self, obs_dim, act_dim, gamma=0.98, tau=0.01, alpha=0.1):
        self.policy = SquashedPolicy(obs_dim, act_dim)
        self.critic, self.target = TwinQ(obs_dim, act_dim), TwinQ(obs_dim, act_dim)
        self.target.load_state_dict(self.critic.state_dict())
        self.pi_opt = torch.optim.Adam(self.policy.parameters(), 3e-4)
        self.q_opt = torch.optim.Adam(self.critic.parameters(), 3e-4)
        self.gamma, self.tau, self.alpha = gamma, tau, alpha

    def critic_loss(self, b):
        with torch.no_grad():
            a2, logp2 = self.policy(b.nxt)
            q = torch.min(*self.target(b.nxt, a2)) - self.alpha * logp2
            y = b.rew + self.gamma * (1 - b.done) * q
        q1, q2 = self.critic(b.obs, b.act)
        return F.mse_loss(q1, y) + F.mse_loss(q2, y)

    def policy_loss(self, b):
        a, logp = self.policy(b.obs)
        return (self.alpha * logp - torch.min(*self.critic(b.obs, a))).mean()

    def apply(self, opt, module, loss, max_norm=10.0):
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        opt.step()

    def learn(self, b):
        q_loss = self.critic_loss(b)
        # + self.apply(self.q_opt, self.critic, q_loss)
        pi_loss = self.policy_loss(b)
        self.apply(self.q_opt, self.critic, q_loss)  # -
        self.apply(self.pi_opt, self.policy, pi_loss)
        with torch.no_grad():
            for p, t in zip(self.critic.parameters(), self.target.parameters(), strict=True):
                t.lerp_(p, self.tau)
        return q_loss.item(), pi_loss.item()


def env_step(obs, act):
    nxt = obs.clone()
    nxt[:2] = (obs[:2] + 0.2 * act).clamp(-2, 2)
    return nxt, -(nxt[:2] - nxt[2:]).norm().item()


def main():
    random.seed(1)
    torch.manual_seed(1)
    agent, memory = Agent(4, 2), deque(maxlen=2000)
    obs = torch.randn(4)
    for t in range(220):
        with torch.no_grad():
            act = agent.policy(obs[None])[0][0] if t > 120 else torch.rand(2) * 2 - 1
        nxt, rew = env_step(obs, act)
        done = float((t + 1) % 25 == 0)
        memory.append((obs, act, torch.tensor(rew), nxt, torch.tensor(done)))
        obs = torch.randn(4) if done else nxt
        if t >= 128:
            batch = Transition(*(torch.stack(c) for c in zip(*random.sample(list(memory), 64), strict=True)))
            q_loss, pi_loss = agent.learn(batch)
            if t % 20 == 0:
                print(f"t {t} critic {q_loss:.4f} policy {pi_loss:.4f}")


if __name__ == "__main__":
    main()
