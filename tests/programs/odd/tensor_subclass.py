import torch
from torch.utils._pytree import tree_map_only


class Logged(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Logged.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapped(torch.Tensor):
    """Holds another tensor, as quantised and distributed tensors do."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"Wrapped({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(cls, lambda t: t.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


torch.manual_seed(0)
weight = torch.nn.Parameter(torch.randn(3, 4))
x = torch.randn(5, 3).as_subclass(Logged)
loss = (x @ weight).tanh().square().mean()
loss.backward()
print(type(loss).__name__, loss.item(), weight.grad.tolist(), Logged.calls)

held = Wrapped(torch.randn(3, 4)).requires_grad_()
out = (torch.randn(5, 3) @ held).exp().sum()
out.backward()
print(type(out).__name__, out.inner.item(), held.grad.inner.tolist())
