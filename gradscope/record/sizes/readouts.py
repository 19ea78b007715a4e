"""Values that are read outside of the graph: as Python numbers that come back, or before they
require a gradient."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.record.events.provenance import storage_key, storage_of
from gradscope.record.finite import plain, sum_as
from gradscope.record.oprun import flatten
from gradscope.record.sites import Site
from gradscope.record.tracing import unobserved

_MOST_READ = 4096
_LISTED = 64  # numbers in a tensor that are looked up one by one
_ROUND = 2**8  # numbers of no more bits than these stand in many places: 0, 1, 0.5, 100
_LARGEST = 2**24  # elements of what is read out at once, for which another sum is worth its time


class Readouts:
    """What the results of one forward pass sum to, and which leaves (as bits) are upstream: values
    may leave the graph as Python numbers without an op that tells (`tolist()` reads the memory
    itself), and are recognised where a tensor is made from them again."""

    def __init__(self) -> None:
        self._live: dict[tuple[int, float], int] = {}

    def note(self, out: Any, live: int) -> None:
        """Of several results the first: the others are statistics, as the weights of `nll_loss`.
        Parts into which a tensor was taken are a list, and each may be read."""
        given = out[:_LISTED] if isinstance(out, list) else (out,)
        if isinstance(out, tuple):
            given = out[:1]
        for key in filter(None, map(_key, given)):
            self._live[key] = live

    def upstream(self, made: torch.Tensor) -> int:
        """The leaves upstream of the numbers that a new tensor was made from; 0 for its own."""
        key = _key(made)
        live = self._live.get(key, 0) if key is not None else 0
        return live or self._upstream_of_each(made)

    def _upstream_of_each(self, made: torch.Tensor) -> int:
        """The same for `torch.tensor([one_loss, another])`: each number is a result of its own, or
        each row."""
        live = 0
        if made.dim() > 1 and len(made) <= _LISTED:
            with unobserved():
                rows = made.unbind()
            for key in filter(None, map(_key, rows)):
                live |= self._live.get(key, 0)
        values = plain(made) if made.is_cpu and 1 < made.numel() <= _LISTED else None
        if values is None or live:
            return live
        with unobserved():
            numbers = values.reshape(-1).tolist()
        for number in numbers:
            if tells(number):
                live |= self._live.get((1, _rounded(number)), 0)
        return live


def _key(out: Any) -> tuple[int, float] | None:
    """Count and sum of the elements. On a device, reading them takes an op that tells; a round sum,
    or one that is not finite, is shared by too many."""
    is_read = isinstance(out, torch.Tensor) and out.is_cpu and out.numel() <= _LARGEST
    values = plain(out) if is_read else None
    if values is None or values.dtype is torch.float16 or values.dtype is torch.bfloat16:
        return None
    with unobserved():
        # In one order, and rounded, for strides that a new tensor does not have.
        total = sum_as(values, torch.float64)
    return (values.numel(), _rounded(total)) if tells(total) else None


def tells(number: float) -> bool:
    """Whether two that are equal are so for a reason: rewards are 1, as sums of chances are."""
    return math.isfinite(number) and not (math.frexp(number)[0] * _ROUND).is_integer()


def _rounded(number: float) -> float:
    return float(f"{number:.9g}")


class EarlyReads:
    """Where tensors were first read while they required no gradient: leaves that do by now. What
    only shares its memory, as a detached parameter that is initialised, is another tensor."""

    def __init__(self) -> None:
        # By memory, which no other can get while we refer to it. A tensor with a weak reference to
        # it could not be swapped by the program.
        self._sites: dict[tuple[int, int], tuple[StorageWeakRef, Site]] = {}

    def note(self, operands: Iterable[torch.Tensor], out: Any, site: Callable[[], Site]) -> None:
        if len(self._sites) >= _MOST_READ or not torch.is_grad_enabled():
            return
        made = {storage_key(one) for one in flatten(out)}  # a view, or what was written
        for one in operands:
            is_plain = one.is_floating_point() and one.is_leaf and not one.requires_grad
            key = storage_key(one) if is_plain else None
            if key is not None and key not in made and (key, id(one)) not in self._sites:
                self._sites[key, id(one)] = StorageWeakRef(storage_of(one)), site()

    def of(self, leaf: torch.Tensor) -> Site:
        key = storage_key(leaf), id(leaf)
        return self._sites[key][1] if key in self._sites else ()
