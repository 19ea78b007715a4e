"""Bounds and epsilons beside 0, 1 and -1 that half precision rounds to these numbers, and what the
values would be that were to be kept off them."""

from collections.abc import Iterable
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from gradscope.facts import LostBound
from gradscope.ops.patterns import EPSILON
from gradscope.ops.traits import Trait, has
from gradscope.record.finite import HALF, dtype_of, plain
from gradscope.record.journal import Note, to_call
from gradscope.record.schema import OpInfo
from gradscope.record.sites import ModuleFrame, note_site

_POINTS = (-1.0, 0.0, 1.0)  # at which ops break
_BOUNDS = frozenset("clamp clamp_min clamp_max add sub rsub mul div".split())
# The ops that values are followed through, and how many of them.
_FOLLOWED = _BOUNDS | frozenset("neg reciprocal pow sqrt rsqrt abs sum mean prod".split())
_FARTHEST = 6
_LARGEST = 2**22  # elements


class Kept(NamedTuple):
    """What the values of a tensor would be in float64 from a bound on. `lost`: each point, and the
    number that is rounded to it."""

    values: torch.Tensor
    note: Note
    seq: int | None
    dtype: str
    lost: tuple[tuple[float, float], ...]
    size: int  # elements: what it scales, as a norm does with all features, is not followed
    ops: int = 0  # since the bound


class LostBounds:
    """Those whose values are alive."""

    def __init__(self) -> None:
        self._kept = WeakTensorKeyDictionary()
        self._read: dict[int, dict[str, Kept]] = {}  # by the number of the call, and the operand

    def __bool__(self) -> bool:
        return len(self._kept) > 0

    def forget(self) -> None:
        """The step is over: nobody asks for its backward any more."""
        self._read = {}

    def note(
        self,
        func: Any,
        info: OpInfo,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: torch.Tensor,
        seq: int,
        frame: FrameType | None,
        module: ModuleFrame | None,
    ) -> None:
        """An op that has run, going forward: `seq` is the counter after it made a node, else 0."""
        read = self.read_by(None, info.tensors(args, kwargs)) if self else {}
        if read and seq:
            self._read[seq - 1] = read
        kept = None
        first = next(iter(read.values()), None)
        if first is not None and (info.view or out.numel() <= first.size):
            kept = self._followed(func, info, args, kwargs, first)
        lost = _lost(func, info, args, kwargs, out)
        if lost and (kept is None or has(info.name, Trait.CLAMPS)):  # else a part of one bound
            values = out.detach().double() if kept is None else kept.values
            for point, number in lost:
                values = torch.where(values == point, number, values)
            note, made = Note(info, *note_site(frame, module), module), seq - 1 if seq else None
            kept = Kept(values, note, made, dtype_of(out), lost, out.numel())
        if kept is not None:
            self._kept[out] = kept
        elif info.written:
            self._kept.pop(out, None)

    def _followed(
        self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], first: Kept
    ) -> Kept | None:
        """What an op makes of the values as they would be."""
        if first.ops >= _FARTHEST or info.written:
            return None
        if info.name in ("clone", "_to_copy"):
            return first
        is_followed = info.view or has(info.name, Trait.COPIES) or info.name in _FOLLOWED
        if not is_followed or info.name == "as_strided":
            return None
        given = (one if not isinstance(one, torch.Tensor) else self._exact(one) for one in args)
        others = {name: one for name, one in kwargs.items() if name != "dtype"}
        try:
            values = func(*given, **others)
        except RuntimeError:  # laid out in memory otherwise
            return None
        return first._replace(values=values, ops=first.ops + 1)

    def _exact(self, tensor: torch.Tensor) -> torch.Tensor:
        kept: Kept | None = self._kept.get(tensor)
        return kept.values if kept is not None else tensor.detach().double()

    def read_by(
        self, seq: int | None, inputs: Iterable[tuple[str, torch.Tensor]]
    ) -> dict[str, Kept]:
        """Of the operands of a call, by its number or as they are."""
        found = self._read.get(-1 if seq is None else seq)
        known = {role: self._kept.get(one) for role, one in inputs} if found is None else found
        return {role: kept for role, kept in known.items() if kept is not None}


def fact(read: dict[str, Kept], instead: dict[str, float]) -> LostBound | None:
    """The bound of an operand, with what the operands would be at an element."""
    for role, kept in read.items():
        lost = kept.lost
        met = tuple(one for one in lost if kept.ops == 0 and one[1] == instead.get(role))
        if not met and not has(kept.note.info.name, Trait.CLAMPS):  # what it adds is 0, or is not
            met = tuple(one for one in lost if one[0] == 0) or lost[-1:]
        call = to_call(kept.note, kept.seq)
        return LostBound(call, kept.dtype, met or lost, tuple(instead.items()))
    return None


def _lost(
    func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], out: torch.Tensor
) -> tuple[tuple[float, float], ...]:
    is_plain = plain(out) is not None and out.dtype in HALF
    if info.name not in _BOUNDS or not is_plain or out.numel() > _LARGEST:
        return ()
    numbers = (*args[1:], *kwargs.values())
    if not all(one is None or type(one) in (int, float) for one in numbers):
        return ()
    return _rounded(func, args[1:], tuple(kwargs.items()), out.dtype)


@lru_cache(1024)
def _rounded(
    func: Any, numbers: tuple[Any, ...], options: tuple[tuple[str, Any], ...], dtype: torch.dtype
) -> tuple[tuple[float, float], ...]:
    """Where an op gives a point in its dtype, and in float64 a number beside it."""
    given = torch.tensor(_POINTS, dtype=torch.float64)
    rounded = func(given.to(dtype), *numbers, **dict(options)).tolist()
    exact = func(given, *numbers, **dict(options)).tolist()
    both = zip(rounded, exact, strict=True)
    return tuple(
        dict.fromkeys(
            (at, is_so) for at, is_so in both if at in _POINTS and 0 < abs(is_so - at) <= EPSILON
        )
    )
