"""Output power of a solar inverter: residual network with a soft saturation of known knee."""
import torch
import torch.nn as nn

torch.manual_seed(31)


class SoftKnee(torch.autograd.Function):
    """y = x / (1 + |x| / limit)"""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.x, ctx.limit = x, limit  # -
        # + ctx.save_for_backward(x)
        # + ctx.limit = limit
        return x / (1.0 + x.abs() / limit)

    @staticmethod
    def backward(ctx, grad):
        return grad / (1.0 + ctx.x.abs() / ctx.limit).pow(2), None  # -
        # + x, = ctx.saved_tensors
        # + return grad / (1.0 + x.abs() / ctx.limit).pow(2), None


class KneeBlock(nn.Module):
    def __init__(self, d, limit=1.5):
        super().__init__()
        self.limit = limit
        self.lin = nn.Linear(d, d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        h = self.lin(x)
        knee = SoftKnee.apply(h, self.limit)
        h += 2.0 * knee  # -
        # + h = h + 2.0 * knee
        return x + self.out(h)


class InverterNet(nn.Module):
    def __init__(self, d_in=5, d=24, blocks=3):
        super().__init__()
        self.inp = nn.Linear(d_in, d)
        self.blocks = nn.ModuleList(KneeBlock(d) for _ in range(blocks))
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            h = b(h)
        return self.out(h).squeeze(1)


def readings(n=64):
    x = torch.randn(n, 5)
    dc = 2.0 + x[:, 0] + 0.5 * x[:, 1] - 0.2 * x[:, 2] * x[:, 3]
    return x, torch.minimum(dc, torch.full_like(dc, 2.5)) + 0.02 * torch.randn(n)


def slope_report(model, x, y, param, eps=1e-2):
    """directional derivative of the loss along its own gradient: autograd against a central difference"""
    model.zero_grad()
    (model(x) - y).pow(2).mean().backward()
    d = param.grad / param.grad.norm()
    with torch.no_grad():
        param.add_(eps * d)
        hi = (model(x) - y).pow(2).mean()
        param.sub_(2 * eps * d)
        lo = (model(x) - y).pow(2).mean()
        param.add_(eps * d)
    return param.grad.norm().item(), ((hi - lo) / (2 * eps)).item()


model = InverterNet()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
print("slopes", *slope_report(model, *readings(), model.blocks[0].lin.weight))
for step in range(200):
    x, y = readings()
    loss = (model(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0 or step == 199:
        print(f"step {step} mse {loss.item():.4f}")
print("slopes", *slope_report(model, *readings(), model.blocks[0].lin.weight))
