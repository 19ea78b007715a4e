"""A parameter of a subclass that holds two tensors, trained, copied, saved and loaded."""

import copy
import io

import torch
from torch.utils._pytree import tree_map_only


class Split(torch.Tensor):
    @staticmethod
    def __new__(cls, high, low):
        return torch.Tensor._make_wrapper_subclass(cls, high.shape, dtype=high.dtype)

    def __init__(self, high, low):
        self.high, self.low = high, low

    def __tensor_flatten__(self):
        return ["high", "low"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Split(inner["high"], inner["low"])

    def __repr__(self):
        return f"Split({self.high + self.low})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return cls(func(args[0].high), func(args[0].low))
        whole = tree_map_only(cls, lambda t: t.high + t.low, (args, kwargs or {}))
        out = func(*whole[0], **whole[1])
        if func is torch.ops.aten.add_.Tensor and isinstance(args[0], cls):
            args[0].high.copy_(out)
            args[0].low.zero_()
            return args[0]
        return out


torch.manual_seed(0)
net = torch.nn.Linear(3, 2, bias=False)
net.weight = torch.nn.Parameter(Split(net.weight.detach().clone(), torch.full((2, 3), 1e-3)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
for _ in range(3):
    optimizer.zero_grad()
    loss = net(torch.randn(4, 3)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item(), type(net.weight.grad).__name__, net.weight.grad.norm().item())
twin = copy.deepcopy(net)
print(type(twin.weight).__name__, torch.equal(twin.weight.high, net.weight.high))
file = io.BytesIO()
torch.save(net.state_dict(), file)
file.seek(0)
torch.serialization.add_safe_globals([Split])
print(list(torch.load(file, weights_only=False)))
