"""EGNN layer: normalised relative coordinates with self edges, mean by degree of an isolated node."""
import torch
from torch import nn


class EGNN(nn.Module):
    def __init__(self, h=8):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * h + 1, 16), nn.SiLU(), nn.Linear(16, h))
        self.coord = nn.Linear(h, 1, bias=False)
        self.node = nn.Linear(2 * h, h)

    def forward(self, h, x, src, dst):
        rel = x[src] - x[dst]
        dist = rel.norm(dim=-1, keepdim=True)
        m = self.msg(torch.cat([h[src], h[dst], dist], -1))
        deg = torch.zeros(len(h), 1).index_add(0, dst, torch.ones(len(dst), 1))
        agg = torch.zeros_like(h).index_add(0, dst, m) / deg  # -
        # + agg = torch.zeros_like(h).index_add(0, dst, m) / deg.clamp(min=1)
        shift = torch.zeros_like(x).index_add(0, dst, rel / (dist + 1) * self.coord(m))
        return h + self.node(torch.cat([h, agg], -1)), x + shift / deg  # -
        # + return h + self.node(torch.cat([h, agg], -1)), x + shift / deg.clamp(min=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = EGNN(), EGNN()

    def forward(self, h, x, src, dst):
        h, x = self.l1(h, x, src, dst)
        h, x = self.l2(h, x, src, dst)
        return h.mean(0).sum(), x


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
h, x = torch.randn(6, 8), torch.randn(6, 3)
src = torch.tensor([0, 1, 2, 3, 4, 1])
dst = torch.tensor([1, 2, 3, 4, 0, 0])
for step in range(3):
    e, y = net(h, x, src, dst)
    loss = (e - 1) ** 2 + (y - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
