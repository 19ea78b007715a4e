"""An optimizer of the program's own, whose steps give a name the new values."""

import torch


class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p = p - group["lr"] * p.grad  # -
                # + p -= group["lr"] * p.grad


torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = Plain(net.parameters(), 0.1)
x = torch.randn(20, 3)
for _ in range(8):
    loss = (net(x) - x[:, :1]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
