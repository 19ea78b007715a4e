# DQN with prioritised replay for greenhouse heating (off / low / high).
import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(5)
torch.manual_seed(5)


class Greenhouse:
    power = np.array([0.0, 0.8, 2.0])

    def reset(self):
        self.temp, self.hour = rng.uniform(10, 24), rng.integers(24)
        return self.obs()

    def obs(self):
        a = 2 * np.pi * self.hour / 24
        return np.array([(self.temp - 18) / 6, np.sin(a), np.cos(a)], dtype=np.float32)

    def step(self, a):
        outside = 8 - 6 * np.cos(2 * np.pi * (self.hour - 3) / 24)
        self.temp += 0.12 * (outside - self.temp) + self.power[a] + rng.normal(0, 0.1)
        self.hour = (self.hour + 1) % 24
        return self.obs(), -abs(self.temp - 18) / 5 - 0.05 * self.power[a]


class PrioritisedReplay:
    def __init__(self, size, alpha=0.6):
        self.size, self.alpha, self.n = size, alpha, 0
        self.s = torch.zeros(size, 3)
        self.a = torch.zeros(size, 1, dtype=torch.long)
        self.r = torch.zeros(size)
        self.s2 = torch.zeros(size, 3)
        self.priority = torch.zeros(size)

    def push(self, s, a, r, s2):
        i = self.n % self.size
        self.s[i], self.s2[i] = torch.from_numpy(s), torch.from_numpy(s2)
        self.a[i], self.r[i] = int(a), float(r)
        self.priority[i] = self.priority.max().clamp(min=1.0)
        self.n += 1

    def sample(self, k, beta=0.4):
        p = self.priority[: min(self.n, self.size)] ** self.alpha
        idx = torch.multinomial(p, k)
        w = (len(p) * p[idx] / p.sum()) ** -beta
        return idx, w / w.max(), self.s[idx], self.a[idx], self.r[idx], self.s2[idx]

    def update(self, idx, td):
        self.priority[idx] = td.abs() + 1e-2


class DQNAgent:
    def __init__(self, gamma=0.9):
        def make():
            return nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 3))

        self.q, self.q_target, self.gamma = make(), make(), gamma
        self.q_target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=2e-3)

    def act(self, s, eps):
        if rng.random() < eps:
            return int(rng.integers(3))
        with torch.no_grad():
            return self.q(torch.from_numpy(s)).argmax().item()

    def learn(self, buffer, k=64):
        idx, w, s, a, r, s2 = buffer.sample(k)
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            target = r + self.gamma * self.q_target(s2).gather(1, best)  # -
            # + target = r + self.gamma * self.q_target(s2).gather(1, best).squeeze(1)
        td = target - self.q(s).gather(1, a).squeeze(1)
        loss = (w * td.pow(2)).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        buffer.update(idx, td.detach())
        return loss.item()


env, agent, buffer = Greenhouse(), DQNAgent(), PrioritisedReplay(4000)
state, rewards, losses = env.reset(), [], []
for t in range(1400):
    action = agent.act(state, eps=max(0.05, 1 - t / 800))
    nxt, reward = env.step(action)
    buffer.push(state, action, reward, nxt)
    rewards.append(reward)
    state = nxt if (t + 1) % 48 else env.reset()
    if t >= 200 and t % 3 == 0:
        losses.append(agent.learn(buffer))
    if t % 100 == 0:
        agent.q_target.load_state_dict(agent.q.state_dict())
    if t % 200 == 199 and losses:
        print(
            f"t={t + 1} reward/h {np.mean(rewards[-200:]):.3f} td loss {np.mean(losses[-100:]):.4f}"
        )
