import torch
import torch.nn as nn

torch.manual_seed(0)


class MultiTask(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.sigma = nn.Parameter(torch.zeros(n))  # -
        # + self.sigma = nn.Parameter(torch.ones(n))

    def forward(self, losses):
        return sum(one / (2 * s**2) + torch.log(s) for one, s in zip(losses, self.sigma, strict=True))


net = nn.Linear(4, 2)
weigh = MultiTask(2)
opt = torch.optim.Adam([*net.parameters(), *weigh.parameters()], 1e-2)
x, y = torch.randn(10, 4), torch.randn(10, 2)
for _ in range(3):
    out = net(x)
    loss = weigh([(out[:, i] - y[:, i]).pow(2).mean() for i in range(2)])
    opt.zero_grad()
    loss.backward()
    opt.step()
