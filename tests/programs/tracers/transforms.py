import torch
import torch.nn as nn

torch.manual_seed(0)
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

f = lambda x: (x.sin() * x).sum()
x = torch.randn(3, 4)
print(vmap(grad(f))(x).tolist())
print(vmap(vmap(grad(lambda z: z**3)))(x).tolist())
print(jacrev(lambda x: x.sin())(x[0]).tolist())
print(jacfwd(lambda x: x.sin())(x[0]).tolist())
print(hessian(f)(x[0]).tolist())
print(vmap(hessian(f))(x).tolist())
print(grad(lambda x: grad(f)(x).sum())(x).tolist())
o, vj = vjp(f, x)
print(o.item(), vj(torch.tensor(1.0))[0].tolist())
print(jvp(f, (x,), (x,)))
m = nn.Linear(4, 1)
p = dict(m.named_parameters())


def loss(p, x, y):
    return (functional_call(m, p, (x,)) - y).square().sum()


print({k: v.tolist() for k, v in vmap(grad(loss), (None, 0, 0))(p, x, torch.randn(3, 1)).items()})


def inner(x):
    w = x.clone().requires_grad_()
    return w * 2


from torch.func import linearize

print(linearize(f, x[0])[1](x[1]).item())
print(torch._vmap_internals._vmap(lambda a: a * 2)(x).tolist())
y = torch.randn(3, requires_grad=True)
print(torch.autograd.functional.jacobian(lambda y: y.sin(), y, vectorize=True).tolist())
print(torch.autograd.functional.hessian(lambda y: y.sin().sum(), y).tolist())
z = y.sin()
print(torch.autograd.grad(z, y, torch.eye(3), is_grads_batched=True)[0].tolist())
