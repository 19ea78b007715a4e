# slow: compiles
import torch
import torch.nn as nn

torch.manual_seed(0)
from torch.export.experimental import _export_forward_backward


class L(nn.Module):
    def __init__(s):
        super().__init__()
        s.m = nn.Linear(4, 1)

    def forward(s, x):
        return s.m(x).square().mean()


ep = torch.export.export(L(), (torch.randn(3, 4),), strict=True)
try:
    j = _export_forward_backward(ep)
    print(j.graph_module.code)
except Exception as e:
    print(type(e).__name__)
