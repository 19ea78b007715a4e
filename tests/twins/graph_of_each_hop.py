"""Delay propagation over a bus network; the strength of each link is learned."""
import torch
import torch.nn as nn

torch.manual_seed(2)


class LearnedLinks(nn.Module):
    def __init__(self, edges, stops):
        super().__init__()
        allowed = torch.eye(stops, dtype=torch.bool)
        allowed[edges[0], edges[1]] = True
        self.register_buffer("allowed", allowed)
        self.logits = nn.Parameter(0.1 * torch.randn(stops, stops))

    def matrix(self):
        return torch.softmax(self.logits.masked_fill(~self.allowed, -1e9), dim=-1)


class Hop(nn.Module):
    def __init__(self, links, d):
        super().__init__()
        self.adj = links.matrix()  # -
        # + self.links = links
        self.self_lin = nn.Linear(d, d)
        self.link_lin = nn.Linear(d, d)

    def forward(self, h):
        return h + torch.relu(self.self_lin(h) + self.link_lin(self.adj @ h))  # -
        # + return h + torch.relu(self.self_lin(h) + self.link_lin(self.links.matrix() @ h))


class DelayNet(nn.Module):
    def __init__(self, edges, stops, d=16):
        super().__init__()
        self.links = LearnedLinks(edges, stops)
        self.inp = nn.Linear(3, d)
        self.hops = nn.ModuleList(Hop(self.links, d) for _ in range(2))
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h = self.inp(x)
        for hop in self.hops:
            h = hop(h)
        return self.out(h).squeeze(-1)


STOPS = 14
ring = torch.arange(STOPS)
edges = torch.stack((torch.cat((ring, ring[:4])), torch.cat(((ring + 1) % STOPS, (ring[:4] + 7) % STOPS))))


def hour(n=16):
    x = torch.randn(n, STOPS, 3)
    delay = x[..., 0] + 0.6 * x[:, (ring + 1) % STOPS, 0]
    return x, delay + 0.05 * torch.randn(n, STOPS)


net = DelayNet(edges, STOPS)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for it in range(80):
    x, y = hour()
    loss = nn.functional.l1_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0 or it == 79:
        print(it, round(loss.item(), 4))
