import torch

torch.manual_seed(0)
from torch.fx.experimental.proxy_tensor import make_fx


def f(x):
    y = x.sin().exp().sum()
    return torch.autograd.grad(y, x)[0]


x = torch.randn(3, requires_grad=True)
for mode in ("real", "fake", "symbolic"):
    g = make_fx(f, tracing_mode=mode)(x)
    print(g.code)
    print(g(x).tolist())
