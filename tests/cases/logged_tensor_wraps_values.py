# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""A tensor that wraps another one and counts what is done with it."""

import torch
from torch.utils._pytree import tree_map


class Counted(torch.Tensor):
    ops = 0

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"Counted({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        Counted.ops += 1
        args, kwargs = tree_map(cls.inside, (args, kwargs or {}))
        return tree_map(cls.outside, func(*args, **kwargs))

    @staticmethod
    def inside(value):
        return value.held if isinstance(value, Counted) else value

    @staticmethod
    def outside(value):
        return Counted(value) if isinstance(value, torch.Tensor) else value


weight = Counted(torch.tensor([1.0, 4.0])).requires_grad_()
for scale in (1.0, 0.0):
    amount = weight * scale
    loss = torch.sqrt(amount).sum()  # <- culprit
    loss.backward()
    print(loss, weight.grad, Counted.ops)
