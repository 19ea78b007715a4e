"""A picker robot on a one-dimensional aisle learns to reach the shelf with REINFORCE."""
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical

GAMMA = 0.97


class Aisle:
    def __init__(self, length=9, gen=None):
        self.length, self.gen = length, gen

    def reset(self):
        self.pos, self.goal = torch.randint(0, self.length, (2,), generator=self.gen).tolist()
        self.time = 0
        return self.observe()

    def observe(self):
        return torch.tensor([self.pos / self.length, self.goal / self.length, (self.goal - self.pos) / self.length])

    def step(self, action):
        self.pos = min(max(self.pos + action - 1, 0), self.length - 1)
        self.time += 1
        done = self.pos == self.goal or self.time >= 20
        return self.observe(), (1.0 if self.pos == self.goal else -0.05), done


class Policy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.affine1 = nn.Linear(3, hidden)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(hidden, 3)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        h = torch.relu(self.dropout(self.affine1(x)))
        return self.affine2(h)


def select_action(policy, state):
    dist = Categorical(logits=policy(state))
    action = dist.sample()
    policy.saved_log_probs.append(dist.log_prob(action))
    return action.item()


def discounted(rewards):
    total, out = 0.0, []
    for r in reversed(rewards):
        total = r + GAMMA * total
        out.insert(0, total)
    return torch.tensor(out)


def finish_episode(policy, optimizer):
    returns = discounted(policy.rewards)
    if len(returns) > 1:
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    policy_loss = [-log_prob * ret for log_prob, ret in zip(policy.saved_log_probs, returns, strict=False)]
    loss = torch.stack(policy_loss).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    policy.rewards = []
    # + policy.saved_log_probs = []
    return loss.item()


def main():
    torch.manual_seed(12)
    env = Aisle(gen=torch.Generator().manual_seed(2))
    policy = Policy()
    optimizer = optim.Adam(policy.parameters(), lr=5e-3)
    running = 0.0
    for episode in range(320):
        state, done, total = env.reset(), False, 0.0
        while not done:
            state, reward, done = env.step(select_action(policy, state))
            policy.rewards.append(reward)
            total += reward
        running = 0.05 * total + 0.95 * running
        loss = finish_episode(policy, optimizer)
        if episode % 50 == 0:
            print(f"episode {episode}  loss {loss:.3f}  average reward {running:.3f}")


if __name__ == "__main__":
    main()
