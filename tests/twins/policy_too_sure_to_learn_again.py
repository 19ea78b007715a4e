import torch
import torch.nn as nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self, obs_dim=6, n_actions=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, n_actions))

    def forward(self, obs):
        probs = self.net(obs).softmax(dim=-1)  # -
        return Categorical(probs=probs)  # -
        # + return Categorical(logits=self.net(obs))


class Plant:
    """Four quadrants of the first two sensors, one valve for each."""

    def __init__(self, wiring):
        self.wiring = torch.tensor(wiring)

    def batch(self, n):
        obs = torch.randn(n, 6)
        obs[:, :2] = torch.sign(obs[:, :2]) * (0.5 + obs[:, :2].abs())
        quadrant = (obs[:, 0] > 0).long() * 2 + (obs[:, 1] > 0).long()
        return obs, self.wiring[quadrant]


def clone(policy, plant, steps, lr, tag):
    opt = torch.optim.SGD(policy.parameters(), lr=lr, momentum=0.9)
    for step in range(steps):
        obs, expert = plant.batch(128)
        dist = policy(obs)
        loss = -dist.log_prob(expert).mean()
        opt.zero_grad()
        loss.backward()
        gnorm = torch.sqrt(sum(p.grad.pow(2).sum() for p in policy.parameters()))
        opt.step()
        if step % 50 == 0 or step == steps - 1:
            acc = (dist.probs.argmax(-1) == expert).float().mean().item()
            print(
                f"[{tag}] step {step:3d} nll {loss.item():.4f} acc {acc:.2f} |g| {gnorm.item():.2e}"
            )


def dagger_margin(policy, plant, steps, lr, margin=25.0):
    opt = torch.optim.Adam(policy.parameters(), lr=lr)
    for _ in range(steps):
        obs, expert = plant.batch(128)
        logits = policy.net(obs)
        right = logits.gather(1, expert[:, None])
        gap = (right - logits).scatter(1, expert[:, None], margin)
        loss = torch.relu(margin - gap).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    torch.manual_seed(0)
    policy = Policy()
    old, new = Plant([0, 1, 2, 3]), Plant([1, 0, 3, 2])
    clone(policy, old, 150, 0.05, "old plant")
    dagger_margin(policy, old, 150, 0.01)
    clone(policy, new, 300, 0.02, "new plant")


if __name__ == "__main__":
    main()
