"""Adapters: only the adapters are given to the optimizer, everything else still requires grad."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.adapter = nn.Sequential(nn.Linear(d, 2), nn.ReLU(), nn.Linear(2, d))

    def forward(self, x):
        h = torch.relu(self.lin(x))
        return h + self.adapter(h)


net = nn.Sequential(Block(8), Block(8), nn.Linear(8, 2))
opt = torch.optim.AdamW([p for n, p in net.named_parameters() if "adapter" in n], lr=1e-2)
x, y = torch.randn(40, 8), torch.randint(0, 2, (40,))
for _ in range(8):
    net.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    print(loss.item())
