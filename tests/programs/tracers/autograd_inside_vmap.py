import torch

torch.manual_seed(0)
from torch.func import vmap

w = torch.randn(4, requires_grad=True)


def f(x):
    y = (x * w).sin().sum()
    return torch.autograd.grad(y, w)[0]


try:
    print(vmap(f)(torch.randn(3, 4)).tolist())
except Exception as e:
    print(type(e).__name__, str(e)[:80])


def g(x):
    (x * w).sin().sum().backward()
    return x


try:
    print(vmap(g)(torch.randn(3, 4)).tolist())
except Exception as e:
    print(type(e).__name__, str(e)[:80])
