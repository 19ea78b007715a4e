import torch
import torch.nn as nn

torch.manual_seed(0)
from functorch.compile import aot_module, nop

m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 1))
f = aot_module(m, fw_compiler=nop, bw_compiler=nop)
x = torch.randn(3, 4)
for _ in range(3):
    loss = f(x).square().mean()
    loss.backward()
    print(loss.item(), [p.grad.sum().item() for p in m.parameters()])
