import torch
import torch.nn as nn

torch.manual_seed(0)
from torch._subclasses.fake_tensor import FakeTensorMode

with FakeTensorMode() as mode:
    m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 1))
    opt = torch.optim.AdamW(m.parameters())
    for _ in range(3):
        opt.zero_grad()
        loss = m(torch.randn(3, 4)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
    print(loss.shape, type(loss).__name__)
m2 = nn.Linear(3, 3)
with FakeTensorMode(allow_non_fake_inputs=True) as mode:
    x = mode.from_tensor(torch.randn(2, 3))
    loss = m2(x).sum()
    loss.backward()
    print(type(m2.weight.grad).__name__)
m2.weight.grad = None
m2.bias.grad = None
