"""Graph attention on a batch of molecules, without torch_geometric."""
import torch
from torch import nn


def scatter_sum(values, index, size):
    out = values.new_zeros((size, *values.shape[1:]))
    return out.index_add(0, index, values)


class GATLayer(nn.Module):
    def __init__(self, d_in, d_out, heads=2):
        super().__init__()
        self.h, self.d = heads, d_out // heads
        self.proj = nn.Linear(d_in, d_out, bias=False)
        self.att = nn.Parameter(torch.randn(heads, 2 * self.d) * 3)

    def forward(self, x, edge_index):
        src, dst = edge_index
        z = self.proj(x).view(-1, self.h, self.d)
        e = (torch.cat([z[src], z[dst]], -1) * self.att).sum(-1)
        e = nn.functional.leaky_relu(e, 0.2)
        w = e.exp()  # -
        # + top = e.new_full((x.size(0), e.size(1)), float("-inf"))
        # + top = top.index_reduce(0, dst, e.detach(), "amax")
        # + w = (e - top[dst]).exp()
        norm = scatter_sum(w, dst, x.size(0))
        alpha = w / norm[dst]
        out = scatter_sum(alpha[..., None] * z[src], dst, x.size(0))
        return out.flatten(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = GATLayer(8, 32)
        self.l2 = GATLayer(32, 32)
        self.readout = nn.Linear(32, 1)

    def forward(self, batch):
        h = torch.relu(self.l1(batch["x"], batch["edges"]))
        h = self.l2(h, batch["edges"])
        pooled = scatter_sum(h, batch["graph"], batch["n"])
        sizes = torch.bincount(batch["graph"], minlength=batch["n"])
        return self.readout(pooled / sizes[:, None]).squeeze(1)


def molecules(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(20, 8, generator=g) * 12
    edges = torch.randint(0, 20, (2, 60), generator=g)
    graph = torch.arange(20) // 5
    return {"x": x, "edges": edges, "graph": graph, "n": 4}, torch.randn(4, generator=g)


def main():
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(8):
        batch, y = molecules(step)
        loss = nn.functional.mse_loss(net(batch), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


main()
