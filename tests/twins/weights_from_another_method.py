import torch
import torch.nn as nn

torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q = nn.Linear(d, 16)
        self.v = nn.Linear(16, 1, bias=False)

    def energy(self, x):
        return torch.exp(self.v(torch.relu(self.q(x))).squeeze(-1) * 300)  # -
        # + return self.v(torch.relu(self.q(x))).squeeze(-1) * 300

    def forward(self, x):
        w = self.energy(x)
        w = w / w.sum(dim=1, keepdim=True)  # -
        # + w = torch.softmax(w, dim=1)
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
