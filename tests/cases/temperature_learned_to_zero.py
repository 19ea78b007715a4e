# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: epsilon
import torch
from torch import nn

torch.manual_seed(0)


class Prototype(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.proto = nn.Parameter(torch.randn(n, d))
        self.tau = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        d = -torch.cdist(x, self.proto)
        return d / torch.relu(self.tau)  # <- culprit


net = Prototype(3, 4)
opt = torch.optim.SGD(
    [
        {"params": [net.proto], "lr": 0.01},
        {"params": [net.tau], "lr": 1.0},
    ]
)
x = torch.randn(30, 4)
y = torch.cdist(x, net.proto.detach()).argmin(1)
for i in range(12):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y) + 0.5 * net.tau
    loss.backward()
    opt.step()
    print(i, loss.item(), net.tau.item())
