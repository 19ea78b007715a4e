import torch
import torch.nn as nn

torch.manual_seed(0)


def normalise(w, dim=-1):
    return w / w.sum(dim, keepdim=True)  # -
    # + return torch.softmax(w, dim)


class Pool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q = nn.Linear(d, 16)
        self.v = nn.Linear(16, 1, bias=False)

    def forward(self, x):
        s = self.v(torch.relu(self.q(x))).squeeze(-1) * 300
        w = normalise(s.exp(), 1)  # -
        # + w = normalise(s, 1)
        return (w.unsqueeze(-1) * x).sum(1)


pool = Pool(8)
head = nn.Linear(8, 2)
opt = torch.optim.Adam([*pool.parameters(), *head.parameters()], lr=1e-3)
for _step in range(5):
    x = torch.randn(4, 6, 8) * 12
    y = torch.randint(2, (4,))
    loss = nn.functional.cross_entropy(head(pool(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
