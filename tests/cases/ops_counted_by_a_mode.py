# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: stable-op
"""Speed of particles, while a mode counts the ops that run."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops += 1
        return func(*args, **(kwargs or {}))


velocity = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
with Counter() as counter:
    energy = velocity.square().sum(1)
    speed = energy.sqrt()  # <- culprit
    speed.mean().backward()
print(counter.ops, velocity.grad)
