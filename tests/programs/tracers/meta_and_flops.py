import torch
import torch.nn as nn

torch.manual_seed(0)
from torch.utils.flop_counter import FlopCounterMode

with torch.device("meta"):
    m = nn.Linear(4, 2)
    (m(torch.randn(3, 4)).sum()).backward()
    torch.optim.SGD(m.parameters(), 0.1).step()
m = nn.Linear(4, 2)
with FlopCounterMode(display=False) as f:
    m(torch.randn(3, 4)).sum().backward()
print(f.get_total_flops())
