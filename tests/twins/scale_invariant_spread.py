"""Monocular distance of a canopy from an overhead camera; ground truth comes in millimetres."""
import torch
import torch.nn as nn

torch.manual_seed(2)


class RangeLoss(nn.Module):
    """Log error that does not depend on the global scale."""

    def __init__(self, variance_focus=1.0, weight=10.0):
        super().__init__()
        self.variance_focus = variance_focus
        self.weight = weight

    def forward(self, pred, target):
        valid = target > 0
        d = torch.log(pred[valid]) - torch.log(target[valid])
        spread = (d ** 2).mean() - self.variance_focus * d.mean() ** 2  # -
        return torch.sqrt(spread) * self.weight  # -
        # + centred = (d - d.mean()).pow(2).mean()
        # + spread = centred + (1 - self.variance_focus) * d.mean() ** 2
        # + return torch.sqrt(spread + 1e-8) * self.weight


class RangeNet(nn.Module):
    def __init__(self, ch=16, max_range=4.0):
        super().__init__()
        self.max_range = max_range
        self.enc = nn.Sequential(nn.Conv2d(2, ch, 3, padding=1), nn.ELU(), nn.Conv2d(ch, ch, 3, padding=1), nn.ELU())
        self.out = nn.Conv2d(ch, 1, 1)

    def forward(self, x):
        return self.max_range * torch.sigmoid(self.out(self.enc(x)))


def render_bench(n, size=12):
    tilt = torch.rand(n, 1, 1, 1) * 0.5
    rows = torch.linspace(-1, 1, size).view(1, 1, size, 1).expand(n, 1, size, size)
    image = torch.cat([tilt.expand(n, 1, size, size), rows], 1)
    metres = 1.5 * torch.exp(tilt * rows * 0.6)
    depth = metres * 1000.0
    depth[:, :, :, 0] = 0
    return image, depth


model = RangeNet()
criterion = RangeLoss()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=300)
image, depth = render_bench(4)

for step in range(300):
    loss = criterion(model(image), depth)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 25 == 24:
        print(f"step {step + 1:4d}  loss {loss.item():.5f}")
