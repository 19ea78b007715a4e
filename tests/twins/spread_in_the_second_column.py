import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 2))

    def forward(self, x):
        out = self.body(x)
        return out[:, 0], out[:, 1]  # -
        # + return out[:, 0], nn.functional.softplus(out[:, 1])


def nll(y, mu, sigma):
    return (torch.log(sigma) + (y - mu) ** 2 / (2 * sigma**2)).mean()


x = torch.randn(50, 3)
y = x.sum(1) + 0.1 * torch.randn(50)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for i in range(6):
    mu, sigma = net(x)
    loss = nll(y, mu, sigma)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
