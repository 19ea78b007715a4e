import torch

torch.manual_seed(0)
from functorch.compile import aot_function, nop

f = aot_function(lambda a, b: (a * b).sin().sum(), fw_compiler=nop, bw_compiler=nop)
a = torch.randn(4, requires_grad=True)
b = torch.randn(4, requires_grad=True)
for _ in range(3):
    loss = f(a, b)
    loss.backward()
    print(loss.item(), a.grad.tolist())
