"""Which functions a kept step may name: those of torch's that compute with tensors."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.overrides import get_overridable_functions, resolve_name

Function = Callable[..., Any]

# What is called by its module, and is looked at as one call.
WHOLE: dict[str, tuple[Any, str]] = {
    "torch.autograd.backward": (torch.autograd, "backward"),
    "torch.autograd.grad": (torch.autograd, "grad"),
    "torch.nn.utils.clip_grad_norm_": (torch.nn.utils, "clip_grad_norm_"),
    "torch.nn.utils.clip_grad_value_": (torch.nn.utils, "clip_grad_value_"),
}
# Reads or writes files, or runs what it is given.
_BARRED_METHODS = (
    "__reduce_ex__ __reduce__ __setstate__ register_hook register_post_accumulate_grad_hook"
    " apply_ map_ map2_ module_load share_memory_ storage untyped_storage"
)
_BARRED = {"torch.from_file", *(f"torch.Tensor.{name}" for name in _BARRED_METHODS.split())}
_WRITTEN = ("data", "grad", "requires_grad", "real", "imag")  # attributes of a tensor
_NATIVE = {
    "torch": torch._C._VariableFunctions,
    "torch._C._nn": torch._C._nn,
    "torch.Tensor": torch._C.TensorBase,
}


@cache
def _by_function() -> dict[Function, str]:
    found: dict[Function, str] = {}
    for name, owner in _NATIVE.items():
        for one in dir(owner):
            function = getattr(owner, one)
            if callable(function) and not isinstance(function, type) and not one.startswith("__"):
                found.setdefault(function, f"{name}.{one}")
    for functions in get_overridable_functions().values():
        for function in functions:
            name = resolve_name(function)
            if name is not None:
                found[function] = name
    for name in _WRITTEN:
        for way in ("__set__", "__delete__") if name == "grad" else ("__set__",):
            found[getattr(getattr(torch.Tensor, name), way)] = f"torch.Tensor.{name}.{way}"
    for name, (owner, attribute) in WHOLE.items():
        found[getattr(owner, attribute)] = name
    return {function: name for function, name in found.items() if name not in _BARRED}


@cache
def _by_name() -> dict[str, Function]:
    return {name: function for function, name in _by_function().items()}


def name_of(function: Function) -> str | None:
    """The name by which a kept step calls it; None where it may not."""
    try:
        return _by_function().get(function)
    except TypeError:  # it has no hash
        return None


def function_of(name: str) -> Function | None:
    """The function of a name; None where a kept step may not call it."""
    return _by_name().get(name)
