import torch
import torch.nn as nn

torch.manual_seed(0)
data = torch.randn(100, 5)
X, y = data[:, :4], data[:, 4] + data[:, 0]


class Reg(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.Sequential(nn.Linear(4, 32), nn.ReLU())
        self.mu = nn.Linear(32, 1)
        self.logvar = nn.Linear(32, 1)

    def forward(self, x):
        h = self.h(x)
        return self.mu(h), self.logvar(h)  # -
        # + return self.mu(h).squeeze(-1), self.logvar(h).squeeze(-1)


def nll(mu, logvar, y):
    return (0.5 * logvar + 0.5 * (y - mu) ** 2 / logvar.exp()).mean()


net = Reg()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for i in range(5):
    mu, logvar = net(X)
    loss = nll(mu, logvar, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
