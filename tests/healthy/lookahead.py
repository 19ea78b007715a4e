import torch
import torch.nn as nn

torch.manual_seed(0)


class Lookahead(torch.optim.Optimizer):
    def __init__(self, base, k=5, alpha=0.5):
        self.base, self.k, self.alpha, self.n = base, k, alpha, 0
        super().__init__(base.param_groups, {})
        self.slow = [[p.clone().detach() for p in g["params"]] for g in base.param_groups]

    def step(self, closure=None):
        loss = self.base.step(closure)
        self.n += 1
        if self.n % self.k == 0:
            for g, slow in zip(self.base.param_groups, self.slow):
                for p, q in zip(g["params"], slow):
                    q.add_(p.detach() - q, alpha=self.alpha)
                    p.data.copy_(q)
        return loss


net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
opt = Lookahead(torch.optim.SGD(net.parameters(), lr=0.05))
for i in range(30):
    x = torch.randn(16, 6)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
