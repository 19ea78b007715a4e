import torch

torch.manual_seed(0)
from torch.func import functionalize, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

f = lambda x: x.sin().sum()
x = torch.randn(3)
print(make_fx(grad(f))(x).code)
print(make_fx(vmap(grad(f)))(torch.randn(2, 3)).code)
print(make_fx(functionalize(grad(lambda x: x.clone().mul_(2).sum())))(x).code)
