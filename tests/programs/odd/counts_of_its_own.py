"""Counts what it asks torch for, by modes and by a class of tensors: at steps that are looked at in
full, at watched ones, and at those that go by."""

from collections import Counter

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

torch.manual_seed(0)


class Ops(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen[resolve_name(func) or func.__name__] += 1
        return func(*args, **(kwargs or {}))


class Counted(torch.Tensor):
    seen = Counter()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Counted.seen[resolve_name(func) or func.__name__] += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


@torch.library.custom_op("counts::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * torch.full((1,), 2.0)


twice.register_autograd(lambda ctx, grad: 2 * grad)

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)


def train(optimizer):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for _ in range(40):
        optimizer.zero_grad()
        loss = twice(Square.apply(net(torch.randn(16, 4)))).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    print(loss.item(), loss.detach().tolist(), loss)


def train_scaled(optimizer):
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(net(torch.randn(16, 4)).square().mean()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


def train_closure(optimizer):
    batch = torch.randn(16, 4)

    def closure():
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def by_hand(weight):
    for _ in range(40):
        (weight * weight).sum().backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad
        weight.grad = None
        torch.autograd.grad((weight * weight).sum(), weight)


for mode in (Ops, Functions):
    with mode() as counted:
        train(torch.optim.SGD(net.parameters(), 0.01))
        train(torch.optim.Adam(net.parameters(), 0.01))
        train_scaled(torch.optim.SGD(net.parameters(), 0.01))
        train_closure(torch.optim.LBFGS(net.parameters(), 0.01))
        by_hand(torch.ones(4, requires_grad=True))
    print(*sorted(counted.seen.items()), sep="\n")
by_hand(weight := torch.ones(4).as_subclass(Counted).requires_grad_())
optimizer = torch.optim.Adam([held := torch.nn.Parameter(torch.ones(4).as_subclass(Counted))])
for _ in range(40):
    optimizer.zero_grad()
    (held * held).sum().backward()
    optimizer.step()
print(type(weight * 2), type(held), type(held.grad), *sorted(Counted.seen.items()), sep="\n")
