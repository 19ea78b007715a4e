"""Tracebacks that the program prints of errors that it catches."""

import traceback
import warnings

import torch
from torch.utils.data import DataLoader, Dataset


class Multiplies(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(7)


class RefusesForward(torch.autograd.Function):
    gradscope_ok = "it is never differentiated"

    @staticmethod
    def forward(ctx, x):
        raise KeyError("forward")


class RefusesBackward(torch.autograd.Function):
    gradscope_ok = "it only raises"

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("backward")


class Missing(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise IndexError("not there")


def shapes():
    torch.ones(2) @ torch.ones(3)


def closure():
    raise RuntimeError("closure")


def hooked():
    y = x * 1
    y.register_hook(lambda grad: shapes())
    y.sum().backward()


def chained():
    try:
        shapes()
    except RuntimeError as error:
        raise ValueError("chained") from error


def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("strict")


x = torch.ones(2, requires_grad=True)
net = Multiplies()
optimizer = torch.optim.SGD([x], lr=0.1)
scaler = torch.amp.GradScaler("cpu")
ATTEMPTS = (
    shapes,
    chained,
    hooked,
    strict,
    lambda: net(x),
    lambda: (x * 2).backward(),
    lambda: torch.autograd.grad(x, [x * 2]),
    lambda: RefusesForward.apply(x),
    lambda: RefusesBackward.apply(x).sum().backward(),
    lambda: optimizer.step(closure),
    lambda: torch.optim.SGD([], lr=0.1),
    lambda: scaler.step(optimizer),
    lambda: scaler.unscale_(3),
    lambda: torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(torch.ones(1))], "a"),
    lambda: torch.optim.lr_scheduler.StepLR(3, 1),
    x.item,
    x.numpy,
    lambda: torch.nn.BatchNorm1d(3)(x),
    lambda: list(DataLoader(Missing())),
    lambda: torch.linalg.cholesky(-torch.eye(2)),
    lambda: torch.func.grad(lambda v: v @ torch.ones(9))(x),
    lambda: torch.utils.checkpoint.checkpoint(shapes, use_reentrant=False),
)

for _ in range(4):  # a step that is only watched, too
    for attempt in ATTEMPTS:
        try:
            attempt()
        except Exception:
            print(traceback.format_exc())
    x.grad = None
    x.square().sum().backward()
