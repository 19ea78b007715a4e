"""Errors that the program expects and catches, in the middle of forward and backward."""

import gc
import warnings

import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("refused")


def attempt(what, run):
    try:
        run()
    except (Exception, KeyboardInterrupt) as error:
        print(what, type(error).__name__, str(error).splitlines()[:1])


def interrupted(grad):
    raise KeyboardInterrupt


for _ in range(2):
    optimizer.zero_grad()
    loss = net(torch.randn(4, 3)).square().mean()
    loss.backward()
    attempt("twice", loss.backward)
    attempt("backward", lambda: Refuses.apply(net.weight).sum().backward())
    attempt("shapes", lambda: net(torch.randn(4, 2)))
    attempt("no graph", lambda: torch.ones(2).sum().backward())
    hook = net.weight.register_hook(interrupted)
    attempt("hook", lambda: net(torch.ones(1, 3)).sum().backward())
    hook.remove()
    version = net.weight.exp()
    version.add_(1)
    attempt("in place", lambda: version.sum().backward())
    attempt("leaf", lambda: net.weight.mul_(2))
    attempt("double", lambda: torch.autograd.grad(torch.autograd.grad(loss.detach(), []), []))
    optimizer.step()
    print(loss.item(), net.weight.grad.norm().item())

with warnings.catch_warnings(), torch.autograd.detect_anomaly():
    warnings.simplefilter("ignore")
    net(torch.ones(1, 3)).sum().backward()
gc.collect()
print(net.weight.grad.tolist(), torch.is_anomaly_enabled())
