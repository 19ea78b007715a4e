import torch
import torch.nn as nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Dropout(0.1), nn.Linear(5, 1))
x = torch.randn(3, 4)
for strict in (False, True):
    ep = torch.export.export(m, (x,), strict=strict)
    print(ep.graph_module.code)
    loss = ep.module()(x).square().mean()
    loss.backward()
    print(loss.item(), [p.grad.sum().item() for p in m.parameters() if p.grad is not None])
    print(ep.run_decompositions().graph_module.code)
