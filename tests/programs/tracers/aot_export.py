import torch
import torch.nn as nn

torch.manual_seed(0)
from torch._functorch.aot_autograd import aot_export_module

m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 1))
x = torch.randn(3, 4)


class L(nn.Module):
    def __init__(s):
        super().__init__()
        s.m = m

    def forward(s, x):
        return (s.m(x).square().mean(),)


g, sig = aot_export_module(L(), (x,), trace_joint=True, output_loss_index=0)
print(g.code)
