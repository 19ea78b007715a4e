# slow: compiles
import torch
import torch.nn as nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 1))
c = torch.compile(m, backend="inductor", fullgraph=True)
x = torch.randn(3, 4)
opt = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    loss = c(x).square().mean()
    loss.backward()
    opt.step()
    print(loss.item())
