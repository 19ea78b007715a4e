import torch
import torch.nn as nn

torch.manual_seed(0)


class Scaled(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x):
        self.scale = nn.Parameter(torch.ones(x.shape[-1]))  # -
        return self.lin(x) * self.scale  # -
        # + return self.lin(x) * self.scale


net = Scaled(6)
opt = torch.optim.SGD(net.parameters(), 0.1)
x = torch.randn(20, 6)
for _ in range(5):
    loss = (net(x) - 2 * x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
