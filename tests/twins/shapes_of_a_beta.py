import torch
import torch.nn as nn

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, s):
        a, b = torch.relu(self.net(s)).unbind(-1)  # -
        # + a, b = torch.nn.functional.softplus(self.net(s)).unbind(-1)
        return a, b


policy = Policy()
s = torch.randn(10, 4)
a, b = policy(s)
act = torch.rand(10) * 0.9 + 0.05
logp = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
logp = logp + (a - 1) * act.log() + (b - 1) * (1 - act).log()
loss = -(logp * torch.randn(10)).mean()
loss.backward()
