import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class GATLayer(nn.Module):
    def __init__(self, fin, fout):
        super().__init__()
        self.w = nn.Linear(fin, fout, bias=False)
        self.a_src = nn.Parameter(torch.randn(fout))
        self.a_dst = nn.Parameter(torch.randn(fout))

    def forward(self, x, edge_index):
        h = self.w(x)
        src, dst = edge_index
        e = F.leaky_relu((h * self.a_src).sum(-1)[src] + (h * self.a_dst).sum(-1)[dst], 0.2)
        num = torch.exp(e)  # -
        # + top = torch.full((x.size(0),), float("-inf")).index_reduce(0, dst, e.detach(), "amax")
        # + num = torch.exp(e - top[dst])
        den = torch.zeros(x.size(0)).index_add(0, dst, num)
        alpha = num / den[dst]
        out = torch.zeros_like(h).index_add(0, dst, alpha[:, None] * h[src])
        return out


n = 20
x = torch.randn(n, 8) * 30
edges = torch.stack([torch.randint(0, n, (60,)), torch.randint(0, n, (60,))])
labels = torch.randint(0, 3, (n,))
l1, l2 = GATLayer(8, 16), nn.Linear(16, 3)
opt = torch.optim.Adam([*l1.parameters(), *l2.parameters()], lr=1e-3)
for epoch in range(3):
    logits = l2(F.elu(l1(x, edges)))
    loss = F.cross_entropy(logits, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item())
