import torch
import torch.nn as nn

torch.manual_seed(1)


class AffineCoupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        xa, xb = x.chunk(2, dim=1)
        if self.flip:
            xa, xb = xb, xa
        raw, shift = self.net(xa).chunk(2, dim=1)
        scale = torch.sigmoid(raw)
        yb = (xb + shift) * scale
        logdet = torch.log(scale).sum(1)  # -
        # + logdet = nn.functional.logsigmoid(raw).sum(1)
        return torch.cat([xa, yb], 1), logdet


flow = nn.ModuleList([AffineCoupling(i % 2 == 0) for i in range(2)])
opt = torch.optim.Adam(flow.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(32, 4)
    if step == 1:
        x[4] *= 1e4
    z, total = x, 0
    for layer in flow:
        z, ld = layer(z)
        total = total + ld
    loss = (0.5 * z.clamp(-50, 50).pow(2).sum(1) - total).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
