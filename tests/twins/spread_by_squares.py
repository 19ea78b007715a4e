import torch
import torch.nn as nn


class StreamNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        mean = x.mean(0)
        var = (x * x).mean(0) - mean * mean  # -
        # + var = x.var(0, correction=0)
        std = torch.sqrt(var)
        return (x - mean) / std * self.gain + self.shift


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = StreamNorm(4)
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.body(self.norm(x)).squeeze(-1)


def sensor_batch(n, gen):
    t = torch.rand(n, 4, generator=gen)
    x = torch.stack([t[:, 0], 3 * t[:, 1] - 1, 1013.0 + 0.05 * t[:, 2], 20 + 2 * t[:, 3]], 1)
    y = t[:, 0] - t[:, 1] + t[:, 2] * t[:, 3]
    return x, y


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(60):
        x, y = sensor_batch(32, gen)
        loss = (net(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
