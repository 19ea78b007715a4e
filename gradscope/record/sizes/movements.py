"""What the steps of one optimizer did to its parameters: how far they moved, whether half precision
rounds that away, and whether something that they are divided by has become inf."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from statistics import median
from typing import Any

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import Movement, Overflow
from gradscope.record.finite import all_finite, dtype_of, plain
from gradscope.record.optimizers import parameters_of
from gradscope.record.sites import place_of
from gradscope.record.sizes.clipping import Clip
from gradscope.record.sizes.leaves import has_memory

_MOST_READ = 64  # parameters of an optimizer that are looked at
_ELEMENTS = 1024  # of each of them, at even distances
_HALF = (torch.bfloat16, torch.float16)
_FULL = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class _Part:
    parameter: torch.Tensor
    values: torch.Tensor
    pulled: torch.Tensor  # whose gradient is not 0


Before = list[_Part]


def begin_movement(optimizer: Any, *, clipped: bool) -> Before | None:
    """The values before a step; None where nothing that it holds is in half precision, and the
    gradients are not `clipped` either."""
    dtypes = (*_HALF, *(_FULL if clipped else ()))
    held = [one for one in parameters_of(optimizer) if _can_be_read(one, dtypes)]
    every = max(1, len(held) // _MOST_READ)
    parts = [
        _Part(one, _sample(one).clone(), _sample(one.grad).ne(0))
        for one in held[::every]
        if one.grad is not None and _can_be_read(one.grad, dtypes)
    ]
    return parts or None


def end_movement(
    before: Before, step: int, lr: float, clips: Sequence[Clip], names: Mapping[int, str]
) -> Movement | None:
    """What the step after a pass has changed of them, and which of the `clips` before it cut most
    off; None where no gradient was other than 0."""
    if not any(bool(part.pulled.any()) for part in before):
        return None
    half = [part for part in before if part.values.dtype in _HALF]
    counts = [int(part.pulled.count_nonzero()) for part in half]
    still = [int((part.values.eq(_sample(part.parameter)) & part.pulled).sum()) for part in half]
    worst = half[max(range(len(half)), key=still.__getitem__)] if half else before[0]
    found = Movement(
        step=step,
        lr=lr,
        pulled=sum(counts),
        still=sum(still),
        leaf=names.get(id(worst.parameter), "a parameter"),
        dtype=dtype_of(worst.parameter),
        scale=float(worst.values.float().abs().mean()),
    )
    totals = [(clip, float(clip.total)) for clip in clips if clip.total is not None]
    if not totals:
        return found
    clip, total = min(totals, key=lambda one: one[0].bound / (one[1] or math.inf))
    weights = [part for part in before if part.parameter.dim() > 1] or before
    moved, place = median(map(_moved, weights)), place_of(clip.site)
    return replace(found, moved=moved, bound=clip.bound, total=total, clipped_at=place)


def overflow_in(optimizer: Any, step: int, names: Mapping[int, str]) -> Overflow | None:
    """What it keeps of a finite gradient that is inf now."""
    kept = [
        (one, key, each)
        for one in parameters_of(optimizer)
        for key, each in optimizer.state.get(one, {}).items()
        if getattr(each, "ndim", 0)
    ]
    if all_finite(each for *_, each in kept):
        return None
    found = []
    for one, key, each in kept:
        grad = plain(one.grad) if one.grad is not None else None
        if grad is not None and grad.numel() and not all_finite((each,)) and all_finite((grad,)):
            found.append((one, key, float(grad.abs().max())))
    if not found:
        return None
    worst, key, largest = max(found, key=itemgetter(2))
    dtype = dtype_of(optimizer.state[worst][key])
    leaf = names.get(id(worst), "a parameter")
    return Overflow(step, len({id(one) for one, *_ in found}), dtype, key, leaf, largest)


def overflow_of(clips: Sequence[Clip], optimizer: Any, step: int) -> Overflow | None:
    """The same of the norm that one of them divides by: of a gradient that is bad itself, NaN is
    left."""
    totals = [(clip, plain(clip.total)) for clip in clips if clip.total is not None]
    clip, total = next(
        (one for one in totals if one[1] is not None and one[1].isinf()), (None, None)
    )
    held = [one for one in parameters_of(optimizer) if one.grad is not None]
    if clip is None or total is None or not all_finite(one.grad for one in held):
        return None
    return Overflow(step, len(held), dtype_of(total), clipped_at=place_of(clip.site))


def _moved(part: _Part) -> float:
    """How far it went at right angles to its own values, relative to their length."""
    values = part.values.float()
    change = _sample(part.parameter).float() - values
    square = float(values @ values)
    if part.values.numel() > 1 and square:
        change = change - values * (float(change @ values) / square)
    return float(change.norm()) / math.sqrt(square) if square else math.inf


def _can_be_read(one: torch.Tensor, dtypes: Sequence[torch.dtype]) -> bool:
    return has_memory(one) and one.dtype in dtypes and one.is_contiguous() and one.numel() > 0


def _sample(one: torch.Tensor) -> torch.Tensor:
    return one.detach().view(-1)[:: -(-one.numel() // _ELEMENTS)]
