import torch
import torch.nn as nn


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, p):
        r = torch.sqrt((p**2).sum(1, keepdim=True))  # -
        # + sq = (p**2).sum(1, keepdim=True)
        # + r = torch.where(sq == 0, 0.0, torch.where(sq == 0, 1.0, sq).sqrt())
        return self.net(r).squeeze(1)


def residual(model, p):
    p = p.clone().requires_grad_(True)
    u = model(p)
    grad = torch.autograd.grad(u.sum(), p, create_graph=True)[0]
    return grad.pow(2).sum(1) - 1


torch.manual_seed(0)
model = Field()
grid = torch.linspace(-1, 1, 5)
points = torch.cartesian_prod(grid, grid)
opt = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    loss = residual(model, points).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
