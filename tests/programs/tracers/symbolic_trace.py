import torch
import torch.nn as nn

torch.manual_seed(0)
import torch.fx

m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 1))
g = torch.fx.symbolic_trace(m)
print(g.code)
x = torch.randn(3, 4)
from torch.fx.passes.shape_prop import ShapeProp

ShapeProp(g).propagate(x)
loss = g(x).square().mean()
loss.backward()
print(loss.item(), [p.grad.sum().item() for p in m.parameters()])
from torch.fx import Interpreter

loss = Interpreter(g).run(x).square().mean()
loss.backward()
print(loss.item())
