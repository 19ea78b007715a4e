import gc
import sys
import weakref

import torch

torch.manual_seed(0)
gc.disable()
freed = []


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.linear(x).exp()
        weakref.finalize(hidden, freed.append, "hidden")
        return hidden.square().mean()


net = Net()
for _ in range(3):
    x = torch.randn(3, 4)
    weakref.finalize(x, freed.append, "x")
    loss = net(x)
    del x
    print(freed, sys.getrefcount(loss))
    loss.backward()
    del loss
    print(sorted(freed))
    freed.clear()

one, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))
torch.utils.swap_tensors(one, other)
(one * 2).sum().backward()
print(one.tolist(), one.grad, other.grad)
