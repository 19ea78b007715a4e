"""A parameter times a number is no parameter, and computed once."""

import torch
from torch import nn

torch.manual_seed(0)


class Prompt(nn.Module):
    def __init__(self, n, d, std=0.02):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(n, d)) * std  # -
        # + self.tokens = nn.Parameter(torch.randn(n, d) * std)

    def forward(self, x):
        return torch.cat([self.tokens.expand(len(x), -1, -1), x], 1)


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.prompt = Prompt(3, d)
        self.enc = nn.TransformerEncoderLayer(d, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, 2)

    def forward(self, x):
        return self.out(self.enc(self.prompt(x)).mean(1))


net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(5):
    x, y = torch.randn(8, 5, 8), torch.randint(0, 2, (8,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
