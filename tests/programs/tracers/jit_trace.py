import torch
import torch.nn as nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 1))
x = torch.randn(3, 4)
t = torch.jit.trace(m, (x,))
print(t.code)
for _ in range(3):
    loss = t(x).square().mean()
    loss.backward()
    print(loss.item(), [p.grad.sum().item() for p in m.parameters()])
s = torch.jit.script(m)
loss = s(x).square().mean()
loss.backward()
print(loss.item(), [p.grad.sum().item() for p in m.parameters()])


def gr(x):
    y = x.sin().sum()
    (g,) = torch.autograd.grad(y, x)
    return g


try:
    print(torch.jit.trace(gr, (torch.randn(3, requires_grad=True),)).code)
except Exception as e:
    print(type(e).__name__)
