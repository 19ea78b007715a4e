"""Parcel volume from three depth profiles, everything kept in half precision to fit the edge box."""
import torch
from torch import nn
from torch.optim import Optimizer


class CenteredRMS(Optimizer):
    """RMSprop with a centered second moment, no momentum."""

    def __init__(self, params, lr=1e-3, decay=0.9, eps=1e-8):
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self._update(p, p.grad, self.state[p], group)

    def _update(self, p, g, state, group):
        if not state:
            state["sq"] = torch.zeros_like(p)  # -
            state["mean"] = torch.zeros_like(p)  # -
        rho = group["decay"]  # -
            # + state["sq"] = torch.zeros_like(p, dtype=torch.float32)
            # + state["mean"] = torch.zeros_like(p, dtype=torch.float32)
        # + rho, g = group["decay"], g.float()
        state["sq"].mul_(rho).add_((1 - rho) * g * g)
        state["mean"].mul_(rho).add_((1 - rho) * g)
        spread = (state["sq"] - state["mean"] ** 2).clamp_(min=0).sqrt_().add_(group["eps"])
        p.add_(-group["lr"] * (g / spread))


class ProfileNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 5, stride=2, padding=2)
        self.fc1 = nn.Linear(8 * 16, width)
        self.fc2 = nn.Linear(width, 1)

    def forward(self, profile):
        h = torch.relu(self.conv(profile)).flatten(1)
        return self.fc2(torch.tanh(self.fc1(h))).squeeze(1)


def belt(n, gen):
    size = 0.3 + 0.7 * torch.rand(n, 3, generator=gen)
    pos = torch.linspace(-1, 1, 32)
    profile = size[:, [1]].unsqueeze(-1) * (pos.abs() < size.unsqueeze(-1) * 0.8).float()
    profile = profile + 0.02 * torch.randn(profile.shape, generator=gen)
    return profile.half(), size.prod(1).half()


def main(steps=60):
    torch.manual_seed(14)
    gen = torch.Generator().manual_seed(15)
    net = ProfileNet().half()
    opt = CenteredRMS(net.parameters(), lr=1e-3)
    for step in range(steps):
        profile, volume = belt(64, gen)
        error = net(profile) - volume
        loss = error.float().pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 6 == 0:
            print(f"step {step:2d}  mse {loss.item():.5f}")


main()
