"""Actor-critic for guests at a conveyor belt: which of the passing plates to take with the money that is left."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


@dataclass
class Setup:
    guests: int = 16
    plates: int = 6
    rounds: int = 8
    updates: int = 60
    gamma: float = 0.95
    lr: float = 3e-3


class Belt:
    def __init__(self, cfg, gen):
        self.cfg, self.gen = cfg, gen

    def reset(self, update):
        low = max(2.0, 9.0 - 0.2 * update)
        self.money = low + 3 * torch.rand(self.cfg.guests, generator=self.gen)
        self.serve()

    def serve(self):
        shape = (self.cfg.guests, self.cfg.plates)
        self.price = 0.3 + 0.7 * torch.rand(shape, generator=self.gen)
        self.taste = torch.rand(shape, generator=self.gen)

    def affordable(self):
        return self.price <= self.money.unsqueeze(1)

    def observe(self):
        return torch.cat((self.price, self.taste, self.money.unsqueeze(1) / 10), 1)

    def take(self, plate, active):
        row = torch.arange(self.cfg.guests)
        reward = self.taste[row, plate] * active
        self.money = self.money - self.price[row, plate] * active
        self.serve()
        return reward


class Guest(nn.Module):
    def __init__(self, plates, hidden=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2 * plates + 1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor, self.critic = nn.Linear(hidden, plates), nn.Linear(hidden, 1)

    def forward(self, obs, allowed):
        h = self.trunk(obs)
        # + allowed = allowed | ~allowed.any(-1, keepdim=True)
        scores = F.softmax(self.actor(h), -1) * allowed
        probs = scores / scores.sum(-1, keepdim=True)
        return Categorical(probs=probs), self.critic(h).squeeze(-1)


def rollout(belt, guest, cfg):
    trace = {k: [] for k in ("logp", "value", "reward", "entropy", "active")}
    for _ in range(cfg.rounds):
        allowed = belt.affordable()
        active = allowed.any(1).float()
        dist, value = guest(belt.observe(), allowed)
        plate = dist.sample()
        trace["logp"].append(dist.log_prob(plate))
        trace["entropy"].append(dist.entropy())
        trace["value"].append(value)
        trace["active"].append(active)
        trace["reward"].append(belt.take(plate, active))
    return {k: torch.stack(v) for k, v in trace.items()}


def returns(reward, gamma):
    total, out = torch.zeros(reward.shape[1]), []
    for r in reward.flip(0):
        total = r + gamma * total
        out.append(total)
    return torch.stack(out[::-1])


def main():
    torch.manual_seed(31)
    cfg = Setup()
    belt, guest = Belt(cfg, torch.Generator().manual_seed(32)), Guest(cfg.plates)
    optimizer = torch.optim.Adam(guest.parameters(), lr=cfg.lr)
    for update in range(cfg.updates):
        belt.reset(update)
        tr = rollout(belt, guest, cfg)
        target = returns(tr["reward"], cfg.gamma)
        advantage = (target - tr["value"]).detach()
        n = tr["active"].sum()
        policy = -(advantage * tr["logp"] * tr["active"]).sum() / n
        value = (F.smooth_l1_loss(tr["value"], target, reduction="none") * tr["active"]).sum() / n
        entropy = (tr["entropy"] * tr["active"]).sum() / n
        loss = policy + 0.5 * value - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(guest.parameters(), 1.0)
        optimizer.step()
        if update % 10 == 0:
            print(f"update {update:2d} taste {tr['reward'].sum(0).mean():.3f} loss {loss.item():.3f} plates {int(n)}")


if __name__ == "__main__":
    main()
