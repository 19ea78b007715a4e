"""Policy gradient for traffic signals: 16 junctions with two approaches each, one hour per update."""

import torch
import torch.nn as nn
from torch.distributions import Categorical

WEEKDAY = [
    0.02,
    0.0,
    0.01,
    0.05,
    0.1,
    0.3,
    0.6,
    0.9,
    1.0,
    0.8,
    0.7,
    0.7,
    0.8,
    0.8,
    0.8,
    0.9,
    1.0,
    1.0,
    0.9,
    0.7,
    0.5,
    0.3,
    0.2,
    0.1,
]


class Junctions:
    def __init__(self, n=16, horizon=24):
        self.n, self.horizon = n, horizon

    def reset(self, load):
        self.rate = load * torch.tensor([0.55, 0.2])
        self.queue = torch.zeros(self.n, 2)
        self.green = torch.zeros(self.n, dtype=torch.long)
        self.t = 0
        return self.observe()

    def observe(self):
        return torch.cat([self.queue / 4, nn.functional.one_hot(self.green, 2)], dim=1)

    def step(self, phase):
        switching = (phase != self.green).float()
        self.green = phase
        self.queue += (torch.rand(self.n, 2) < self.rate).float()
        served = torch.zeros(self.n, 2).scatter(
            1, phase[:, None], (1 - 0.5 * switching)[:, None] * 2
        )
        self.queue = (self.queue - served).clamp(min=0)
        self.t += 1
        return self.observe(), -self.queue.sum(1), self.t >= self.horizon


class SignalPolicy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, obs):
        return Categorical(logits=self.body(obs))


def rollout(env, policy, load):
    obs, done = env.reset(load), False
    log_probs, rewards = [], []
    while not done:
        dist = policy(obs)
        phase = dist.sample()
        obs, reward, done = env.step(phase)
        log_probs.append(dist.log_prob(phase))
        rewards.append(reward)
    return torch.stack(log_probs), torch.stack(rewards)


def discounted(rewards, gamma=0.8):
    out, acc = torch.empty_like(rewards), torch.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        acc = rewards[t] + gamma * acc
        out[t] = acc
    return out


def standardise(returns):
    centred = returns - returns.mean()  # -
    return centred / returns.std()  # -
    # + centred, spread = returns - returns.mean(), returns.std()
    # + return centred / spread if spread > 0 else centred


def main(start_hour=6):
    torch.manual_seed(1)
    env, policy = Junctions(), SignalPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-2)
    for update in range(52):
        hour = (start_hour + update) % 24
        log_probs, rewards = rollout(env, policy, WEEKDAY[hour])
        loss = -(log_probs * standardise(discounted(rewards))).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        if hour in (8, 17):
            print(
                f"day {(start_hour + update) // 24} hour {hour:02d}  mean queue {-rewards.mean().item():.2f}"
            )


if __name__ == "__main__":
    main()
