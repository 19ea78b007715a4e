# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
# or line: (the correction of both moments divides by the same 0)
"""Adam by hand; the step counter starts at 0, so the correction divides by 0."""

import torch


class MyAdam:
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.999), eps=1e-8):
        self.params, self.lr, self.betas, self.eps = list(params), lr, betas, eps
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]
        self.t = torch.zeros(())

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for p, m, v in zip(self.params, self.m, self.v, strict=True):
            m.mul_(b1).add_(p.grad, alpha=1 - b1)
            v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            mhat = m / (1 - b1**self.t)  # <- culprit
            vhat = v / (1 - b2**self.t)  # <- culprit
            p -= self.lr * mhat / (vhat.sqrt() + self.eps)
        self.t += 1


torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = MyAdam(net.parameters())
for i in range(3):
    net.zero_grad()
    loss = net(torch.randn(8, 3)).pow(2).mean()
    loss.backward()
    opt.step()
    print(i, loss.item())
