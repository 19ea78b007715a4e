import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
N, C = 64, 8
x = torch.randn(N, 12)
y = torch.randint(0, 5, (N,))
allowed = torch.ones(N, C, dtype=torch.bool)
allowed[:, 6:] = False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, C))

    def forward(self, x, allowed):
        return self.body(x).masked_fill(~allowed, float("-inf"))


def smoothed_loss(logits, target, eps=0.1):
    logp = F.log_softmax(logits, dim=-1)
    nll = -logp.gather(1, target[:, None]).squeeze(1)
    uniform = -logp.mean(dim=-1)  # -
    # + uniform = -logp.where(logp.isfinite(), torch.tensor(0.0)).mean(dim=-1)
    return ((1 - eps) * nll + eps * uniform).mean()


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(20):
    loss = smoothed_loss(net(x, allowed), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
