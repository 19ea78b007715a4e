import copy
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Agent:
    def __init__(self):
        self.online = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.target = copy.deepcopy(self.online)
        self.opt = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.count = 0

    def learn(self, s, a, r, s2):
        q = self.online(s).gather(1, a)
        with torch.no_grad():
            y = r + 0.9 * self.target(s2).max(1, keepdim=True).values
        loss = F.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.count += 1
        if self.count % 10 == 0:
            self.sync()
        return loss.item()

    def sync(self):
        self.online.load_state_dict(self.target.state_dict())  # -
        # + self.target.load_state_dict(self.online.state_dict())


agent = Agent()
for i in range(60):
    s, s2 = torch.randn(32, 4), torch.randn(32, 4)
    a = torch.randint(0, 2, (32, 1))
    r = s[:, :1] * (a * 2 - 1)
    print(i, agent.learn(s, a, r, s2))
