import torch
import torch.nn as nn

torch.manual_seed(0)


class Similarity(nn.Module):
    def __init__(self, tau):
        super().__init__()
        self.tau = tau

    def forward(self, a, b):
        return torch.exp(a @ b.t() / self.tau)  # -
        # + return a @ b.t() / self.tau


sim = Similarity(0.01)


def info_nce(a, b):
    s = sim(a, b)
    pos = s.diag()
    return -torch.log(pos / s.sum(dim=1)).mean()  # -
    # + return -(pos - s.logsumexp(dim=1)).mean()


enc = nn.Linear(10, 8)
opt = torch.optim.SGD(enc.parameters(), lr=1e-2)
for _step in range(5):
    x = torch.randn(12, 10)
    a, b = enc(x), enc(x + 0.1 * torch.randn(12, 10))
    loss = info_nce(a, b)
    opt.zero_grad()
    loss.backward()
    opt.step()
