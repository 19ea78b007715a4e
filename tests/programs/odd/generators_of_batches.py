import contextlib

import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)


def steps(net):
    try:
        while True:
            scale = yield
            loss = (net(torch.randn(4, 3)) * scale).square().mean()
            with torch.no_grad():
                print(net.weight.sum().item())
            loss.backward()
            yield loss.item()
    finally:
        print("closed", torch.is_grad_enabled())


@torch.no_grad()
def evaluate():
    for _ in range(2):
        yield net(torch.ones(1, 3)).requires_grad


@contextlib.contextmanager
def frozen(module):
    module.requires_grad_(False)
    yield
    module.requires_grad_(True)


run = steps(net)
for scale in (1.0, 2.0):
    next(run)
    print(run.send(scale))
run.close()
print(list(evaluate()), torch.is_grad_enabled())
with frozen(net):
    print(net(torch.ones(1, 3)).requires_grad)
