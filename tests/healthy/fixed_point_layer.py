"""Deep equilibrium classifier: no-grad fixed point, implicit gradient through a backward hook."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def solver(f, z, tol=1e-4, max_iter=40):
    with torch.no_grad():
        for k in range(max_iter):
            nxt = f(z)
            res = (nxt - z).norm() / (1e-8 + nxt.norm())
            z = nxt
            if res < tol:
                break
    return z, k + 1


class Cell(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Linear(d, d, bias=False)
        self.u = nn.Linear(d, d)
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, z, x):
        w = self.w.weight / (1.0 + self.w.weight.norm())  # contraction
        return torch.tanh(F.linear(z, w) * (1 + torch.tanh(self.scale)) * 0.9 + self.u(x))


class DEQFixedPoint(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f
        self.forward_iters = self.backward_iters = 0
        self.hook = None

    def forward(self, x):
        z, self.forward_iters = solver(lambda z: self.f(z, x), torch.zeros_like(x))
        z = self.f(z, x)  # re-engage autograd
        if self.training:
            z0 = z.clone().detach().requires_grad_()
            f0 = self.f(z0, x)

            def backward_hook(grad):
                g, self.backward_iters = solver(
                    lambda y: torch.autograd.grad(f0, z0, y, retain_graph=True)[0] + grad,
                    torch.zeros_like(grad),
                )
                return g

            z.register_hook(backward_hook)
        return z


class Net(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(2, d), nn.ReLU())
        self.deq = DEQFixedPoint(Cell(d))
        self.dec = nn.Linear(d, 2)

    def forward(self, x):
        return self.dec(self.deq(self.enc(x)))


def xor_data(n):
    x = torch.rand(n, 2) * 2 - 1
    return x, ((x[:, 0] * x[:, 1]) > 0).long()


def epoch(model, data, opt=None):
    x, y = data
    total = err = 0.0
    model.train() if opt else model.eval()
    for idx in torch.arange(len(x)).split(100):
        with torch.set_grad_enabled(opt is not None):
            yp = model(x[idx])
            loss = F.cross_entropy(yp, y[idx])
        if opt:
            opt.zero_grad()
            loss.backward()
            opt.step()
        err += (yp.argmax(1) != y[idx]).sum().item()
        total += loss.item() * len(idx)
    return total / len(x), err / len(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    train, test = xor_data(1000), xor_data(500)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 7, eta_min=0)
    print("before", epoch(model, test))
    for e in range(8):  # the last epoch runs at rate zero
        lr = opt.param_groups[0]["lr"]
        tr = epoch(model, train, opt)
        sched.step()
        print(
            f"epoch {e} lr {lr:.4f} train {tr[0]:.4f} err {tr[1]:.3f} iters {model.deq.forward_iters}/{model.deq.backward_iters}"
        )
    print("after", epoch(model, test))
