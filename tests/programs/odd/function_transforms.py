import torch
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

torch.manual_seed(0)
x = torch.randn(5, 3)
w = torch.randn(3)


def loss_of(w, x):
    return (x @ w).sigmoid().log().neg().mean()


print(grad(loss_of)(w, x).tolist(), grad_and_value(loss_of)(w, x)[1].item())
print(vmap(grad(loss_of), in_dims=(None, 0))(w, x).tolist())
print(jvp(lambda w: loss_of(w, x), (w,), (torch.ones(3),))[1].item())
value, back = vjp(lambda w: (x @ w).exp(), w)
print(value.tolist(), back(torch.ones(5))[0].tolist())
print(jacrev(loss_of)(w, x).tolist(), jacfwd(loss_of)(w, x).tolist(), hessian(loss_of)(w, x).tolist())
print(vmap(torch.dot)(x, x).tolist(), linearize(torch.sin, w)[1](torch.ones(3)).tolist())
print(functionalize(lambda w: w.clone().mul_(2).sum())(w).item())
noise = vmap(lambda row: row + torch.randn_like(row), randomness="different")(x)
print(noise.sum().item())

models = [torch.nn.Linear(3, 2) for _ in range(4)]
parameters, buffers = stack_module_state(models)


def call(parameters, buffers, x):
    return functional_call(models[0], (parameters, buffers), (x,))


out = vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
out.square().sum().backward()
print({name: value.grad.norm().item() for name, value in parameters.items()})

net = torch.nn.Linear(3, 1)
inner = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
for _ in range(2):  # MAML: the update itself is differentiated
    inner_loss = functional_call(net, inner, (x,)).square().mean()
    grads = torch.autograd.grad(inner_loss, list(inner.values()), create_graph=True)
    inner = {name: p - 0.1 * g for (name, p), g in zip(inner.items(), grads, strict=True)}
outer = functional_call(net, inner, (x,)).square().mean() + sum(p.square().sum() for p in net.parameters())
outer.backward()
print(outer.item(), net.weight.grad.tolist())
