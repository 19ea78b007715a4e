# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""Standard deviation in physical units, which a subclass of Tensor carries along."""

import torch


class Quantity(torch.Tensor):
    unit = "m"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs)


gain = torch.nn.Parameter(torch.ones(3))
lengths = torch.tensor([[1.0, 2.0, 4.0], [2.0, 2.0, 2.0]]).as_subclass(Quantity)
scaled = lengths * gain
variance = scaled.var(1)
deviation = variance.sqrt()  # <- culprit
deviation.sum().backward()
print(deviation, deviation.unit, gain.grad)
