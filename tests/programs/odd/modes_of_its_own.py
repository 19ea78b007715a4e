import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(0)


class Count(TorchDispatchMode):
    names: list[str]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        Functions.calls += 1
        return func(*args, **(kwargs or {}))


net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
with Count() as count, Functions():
    count.names = []
    loss = net(torch.randn(3, 4)).square().mean()
    loss.backward()
print(loss.item(), Functions.calls, len(count.names), sorted(set(count.names)))
with FlopCounterMode(display=False) as flops:
    net(torch.randn(3, 4)).sum().backward()
print(flops.get_total_flops(), net[0].weight.grad.norm().item())
count = Count()
count.names = []
count.__enter__()
loss = net(torch.randn(3, 4)).sum()
count.__exit__(None, None, None)
loss.backward()
print(len(count.names))
with torch.autograd.profiler.profile(use_kineto=False) as profile:
    net(torch.randn(3, 4)).sum().backward()
print(any(event.key == "aten::addmm" for event in profile.key_averages()))
with torch.device("cpu"), torch.autograd.graph.save_on_cpu():
    net(torch.randn(3, 4)).sum().backward()
print(net[0].weight.grad.norm().item())
