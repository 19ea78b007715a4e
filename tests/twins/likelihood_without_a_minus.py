import torch
import torch.nn as nn


class Gauss(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Parameter(torch.zeros(2))
        self.log_s = nn.Parameter(torch.zeros(2))

    def log_prob(self, x):
        return torch.distributions.Normal(self.mu, self.log_s.exp()).log_prob(x).sum(-1)


torch.manual_seed(0)
net = Gauss()
opt = torch.optim.SGD(net.parameters(), lr=0.002)
x = torch.randn(256, 2) * 0.7 + 3
for _ in range(40):
    loss = net.log_prob(x).mean()  # -
    # + loss = -net.log_prob(x).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
