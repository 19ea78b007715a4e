"""Firing curve of a ceramic kiln: temperature from burner settings, trained with a sign-momentum optimizer."""
import torch
import torch.nn as nn
from torch.optim import Optimizer

torch.manual_seed(9)


class SignMomentum(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        if lr <= 0.0:
            raise ValueError(f"invalid lr {lr}")
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["avg"] = torch.zeros_like(p)
                avg = state["avg"]
                if group["weight_decay"]:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                update = avg.mul(b1).add(p.grad, alpha=1 - b1)
                p.add(torch.sign(update), alpha=-group["lr"])  # -
                # + p.add_(torch.sign(update), alpha=-group["lr"])
                avg.mul_(b2).add_(p.grad, alpha=1 - b2)
        return loss


class KilnModel(nn.Module):
    def __init__(self, burners=6, d=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(burners + 1, d), nn.Tanh(), nn.Linear(d, d), nn.Tanh(), nn.Linear(d, 1))

    def forward(self, burners, hour):
        return self.net(torch.cat((burners, hour), dim=1))


gain = torch.rand(6)


def firing(n=64):
    burners, hour = torch.rand(n, 6), torch.rand(n, 1)
    temp = (burners @ gain).unsqueeze(1) * (1 - torch.exp(-3 * hour))
    return burners, hour, temp + 0.02 * torch.randn(n, 1)


model = KilnModel()
opt = SignMomentum(model.parameters(), lr=2e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LinearLR(opt, start_factor=1.0, end_factor=0.1, total_iters=200)
for step in range(200):
    burners, hour, temp = firing()
    loss = (model(burners, hour) - temp).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 40 == 0 or step == 199:
        print(f"step {step} mse {loss.item():.4f}")
