# symptom: nan-loss
# phase: forward
# op: _softmax
# cause: all-masked-softmax
# fix: guard-empty
"""Dense GAT layer without self-loops: node 3 has no neighbour."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class GATLayer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.W = nn.Linear(n_in, n_out, bias=False)
        self.a = nn.Parameter(torch.randn(2, n_out) * 0.1)

    def forward(self, h, adj):
        Wh = self.W(h)
        e = F.leaky_relu((Wh @ self.a[0])[:, None] + (Wh @ self.a[1])[None, :], 0.2)
        attention = torch.where(adj > 0, e, torch.tensor(float("-inf")))
        attention = F.softmax(attention, dim=1)  # <- culprit
        return F.elu(attention @ Wh)


adj = torch.zeros(5, 5)
for i, j in [(0, 1), (1, 2), (2, 4), (0, 4)]:
    adj[i, j] = adj[j, i] = 1
net = GATLayer(6, 3)
out = net(torch.randn(5, 6), adj)
loss = F.cross_entropy(out, torch.tensor([0, 1, 2, 0, 1]))
loss.backward()
print(loss.item())
