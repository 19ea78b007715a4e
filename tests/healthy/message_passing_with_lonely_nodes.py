"""Mean aggregation by scatter, with a clamped degree; node 4 has no neighbour."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class MeanConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.own, self.other = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out)

    def forward(self, x, src, dst):
        total = torch.zeros_like(x).index_add(0, dst, x[src])
        degree = torch.zeros(len(x)).scatter_add(0, dst, torch.ones(len(dst)))
        return self.own(x) + self.other(total / degree.clamp(min=1).unsqueeze(1))


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = MeanConv(6, 8), MeanConv(8, 3)

    def forward(self, x, src, dst):
        h = torch.relu(self.one(x, src, dst))
        strongest = torch.full((5, 8), float("-inf"))
        strongest = strongest.scatter_reduce(0, dst[:, None].expand(-1, 8), h[src], "amax")
        h = h + torch.where(strongest.isinf(), torch.zeros(()), strongest)
        return self.two(h, src, dst)


src, dst = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 2, 3, 0, 2])
model = GraphNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(3):
    loss = nn.functional.cross_entropy(
        model(torch.randn(5, 6), src, dst), torch.tensor([0, 1, 2, 0, 1])
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
