import torch
import torch.nn as nn

torch.manual_seed(0)
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

m = nn.Linear(4, 1)
p = {k: v.detach().clone().requires_grad_() for k, v in m.named_parameters()}


def step(p, x):
    loss = functional_call(m, p, (x,)).square().mean()
    g = torch.autograd.grad(loss, list(p.values()))
    return [v - 0.1 * k for v, k in zip(p.values(), g)]


x = torch.randn(3, 4)
print(make_fx(step)(p, x).code)
print([t.tolist() for t in step(p, x)])
