"""The whole program in float64: what its loss and gradients would be without rounding; and right
beside the point where they have no value."""

import gc
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from gradscope.record.dispatch import Unseen
from gradscope.record.finite import plain, unwrapped

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NARROW = frozenset((torch.float32, torch.float16, torch.bfloat16))
_SOURCES = frozenset(("aten::lift_fresh",))  # its result is a tensor of its own, though it says not


def install(beside: float = 0.0) -> None:
    """From now on all tensors are float64, those that are there as well. Random numbers are those
    of float32, so that data and weights keep their values; but what is trained is moved by a random
    direction of that share of its size, once it is used."""
    gc.unfreeze()  # what was made before a fork is not found otherwise
    there = [one for one in gc.get_objects() if type(one) in _PLAIN]
    there += [one.grad for one in there if one.is_leaf and one.grad is not None]
    with _disable_current_modes():
        _widen(one for one in there if one.dtype in _NARROW and _is_stored(one))
    mode: Any = _Wide(beside)
    mode.__enter__()


def _is_stored(tensor: torch.Tensor) -> bool:
    """Whether its values lie in a storage of its own: not what torch.func has wrapped, nor what was
    freed under it."""
    is_own = unwrapped(tensor) is tensor and tensor.layout is torch.strided
    return is_own and plain(tensor) is not None


def _widen(tensors: Iterable[torch.Tensor]) -> None:
    """What shares memory goes on to do so."""
    wide: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    for one in tensors:
        memory = one.untyped_storage()
        key = memory.data_ptr(), one.dtype
        if key not in wide:
            wide[key] = torch.empty(0, dtype=one.dtype, device=one.device).set_(memory).double()
        one.data = wide[key].as_strided(one.size(), one.stride(), one.storage_offset())


class _Wide(Unseen):
    """Each op on float64 in the place of narrower floats."""

    def __init__(self, beside: float) -> None:
        super().__init__()
        self.beside = beside
        self._moved: dict[int, torch.Tensor] = {}  # by their id, which is theirs while they live

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.beside and torch.is_grad_enabled():
            self._move(one for one in args if isinstance(one, torch.Tensor))
        if torch.Tag.nondeterministic_seeded in func.tags:
            return _drawn(func, args, kwargs)
        roles = {one.name: one for one in func._schema.arguments}
        new = [
            value if one.alias_info is not None else tree_map(_wide, value)
            for one, value in zip(func._schema.arguments, args, strict=False)
        ]
        named = {
            name: value if roles[name].alias_info is not None else tree_map(_wide, value)
            for name, value in kwargs.items()
        }
        return _result(func, func(*new, **named))

    def _move(self, read: Iterable[torch.Tensor]) -> None:
        for one in read:
            is_trained = one.requires_grad and one.is_leaf and one.numel()
            if not is_trained or id(one) in self._moved:
                continue
            self._moved[id(one)] = one
            drawn = torch.Generator().manual_seed(len(self._moved))
            towards = torch.randn(one.shape, generator=drawn, dtype=torch.float64)
            size = self.beside * (float(one.detach().abs().max()) or 1.0)
            one.data.add_((size * towards).to(one.device, one.dtype))


def _result(func: Any, out: Any) -> Any:
    """A view, or what was written in place, stays the tensor that it is."""
    is_alias = any(one.alias_info is not None for one in func._schema.returns)
    return out if is_alias and func._schema.name not in _SOURCES else tree_map(_wide, out)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype in _NARROW else value
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def _drawn(func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Drawn in float32: a generator gives float64 other numbers."""
    written = func._schema.arguments[0].alias_info
    if written is not None and written.is_write:
        drawn = _narrow(args[0])
        func(drawn, *tree_map(_narrow, args[1:]), **tree_map(_narrow, kwargs))
        return args[0].copy_(drawn)
    return tree_map(_wide, func(*tree_map(_narrow, args), **tree_map(_narrow, kwargs)))


def _narrow(value: Any) -> Any:
    is_wide = isinstance(value, torch.Tensor) and value.dtype is torch.float64
    return value.float() if is_wide else value
