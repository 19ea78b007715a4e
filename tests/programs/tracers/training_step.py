import torch
import torch.nn as nn

torch.manual_seed(0)
from torch.fx.experimental.proxy_tensor import make_fx

m = nn.Linear(4, 1)
opt = torch.optim.SGD(m.parameters(), 0.1)
x = torch.randn(3, 4)


def step(x):
    opt.zero_grad()
    loss = m(x).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    return loss


try:
    print(make_fx(step)(x).code)
except Exception as e:
    print(type(e).__name__)
print(m.weight.tolist())
