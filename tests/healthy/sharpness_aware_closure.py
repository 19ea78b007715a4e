import torch
import torch.nn as nn

torch.manual_seed(0)


class SharpnessAware(torch.optim.Optimizer):
    """Climbs to the worst point nearby, asks its closure for the gradient there, and steps along
    that one from where it was."""

    def __init__(self, parameters, radius, **settings):
        super().__init__(parameters, {"radius": radius, **settings})
        self.base = torch.optim.SGD(self.param_groups, **settings)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure):
        held = [one for group in self.param_groups for one in group["params"]]
        norm = torch.stack([one.grad.norm() for one in held]).norm()
        moves = [one.grad * (self.param_groups[0]["radius"] / (norm + 1e-12)) for one in held]
        for one, move in zip(held, moves, strict=True):
            one.add_(move)
        self.zero_grad()
        torch.enable_grad()(closure)()
        for one, move in zip(held, moves, strict=True):
            one.sub_(move)
        self.base.step()
        self.zero_grad()


net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = SharpnessAware(net.parameters(), radius=0.05, lr=0.05, momentum=0.9)
for _ in range(12):
    x = torch.randn(16, 3)

    def closure():
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    print(closure().item())
    optimizer.step(closure)
