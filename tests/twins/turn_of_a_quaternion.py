import torch
import torch.nn as nn


def quat_log(q):
    """Unit quaternions (w, v) to rotation vectors."""
    w, v = q[..., :1], q[..., 1:]
    n = v.norm(dim=-1, keepdim=True)
    return 2 * torch.atan2(n, w) * v / n  # -
    # + still = n == 0
    # + return torch.where(still, 2 * v, 2 * torch.atan2(n, w) * v / torch.where(still, 1.0, n))


class Orient(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 4)
        with torch.no_grad():
            self.fc.bias.copy_(torch.tensor([1.0, 0, 0, 0]))

    def forward(self, x):
        return nn.functional.normalize(self.fc(x), dim=-1)


torch.manual_seed(0)
net = Orient()
x = torch.randn(6, 5)
x[1] = 0
target = 0.3 * torch.randn(6, 3)
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(2):
    loss = (quat_log(net(x)) - target).square().sum(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
