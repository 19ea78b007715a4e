import tempfile

import torch
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
x = torch.randn(5, 3)
packed = unpacked = 0


def to_disk(tensor):
    global packed
    packed += 1
    file = tempfile.NamedTemporaryFile()
    torch.save(tensor, file.name)
    return file


def from_disk(file):
    global unpacked
    unpacked += 1
    return torch.load(file.name)


for hooks in (
    saved_tensors_hooks(to_disk, from_disk),
    saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()),
    save_on_cpu(),
):
    net.zero_grad()
    with hooks:
        loss = net(x).square().sum()
    loss.backward()
    print(loss.item(), [p.grad.norm().item() for p in net.parameters()])
print(packed, unpacked)
with allow_mutation_on_saved_tensors():
    a = torch.ones(2, requires_grad=True).clone()
    b = a**2
    a.sin_()
    (a.sum() + b.sum()).backward()
with disable_saved_tensors_hooks("not here"):
    net(x).sum().backward()
print(net[0].weight.grad.sum().item())
