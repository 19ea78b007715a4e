import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class NTXent(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.t = temperature

    def forward(self, z1, z2):
        z = torch.cat([F.normalize(z1, dim=1), F.normalize(z2, dim=1)])
        n = z1.size(0)
        sim = torch.exp(z @ z.t() / self.t)  # -
        # + sim = z @ z.t() / self.t
        mask = ~torch.eye(2 * n, dtype=torch.bool)
        neg = sim.masked_select(mask).view(2 * n, -1).sum(dim=-1)  # -
        pos = torch.exp((z[:n] * z[n:]).sum(-1) / self.t)  # -
        # + neg = sim.masked_select(mask).view(2 * n, -1).logsumexp(dim=-1)
        # + pos = (z[:n] * z[n:]).sum(-1) / self.t
        pos = torch.cat([pos, pos])
        return -torch.log(pos / neg).mean()  # -
        # + return (neg - pos).mean()


net = nn.Linear(6, 5)
a, b = torch.randn(8, 6), torch.randn(8, 6)
crit = NTXent(0.01)
loss = crit(net(a), net(b))
loss.backward()
