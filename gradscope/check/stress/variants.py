"""Edge inputs made from given ones. Nothing is made that the user has declared not to occur."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradscope.config import Input

HUGE = 1e4  # its square fits float32, its exponential does not
# Names of what is a score before a softmax, or says which of them count.
_SCORE = re.compile(r"logit|score|energ|attn|attention", re.IGNORECASE)
_MASK = re.compile(r"mask|bias", re.IGNORECASE)
TINY = (1e-12, 1e-25)  # the square of the second is 0 in float32
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """Values by name, and how they were made: "zeros in x".

    `sure`: a gradient that breaks here is an error. Elsewhere (a loss that is itself bad, an
    epsilon that half precision cannot hold) the function may be right to break: a warning.
    `structural` ones keep ordinary numbers and change only how many there are, so that a bad loss
    is an error too. `judge_loss` is False where numbers are so large that it says nothing.
    """

    words: str
    values: Values
    structural: bool = False
    judge_loss: bool = True
    sure: bool = True


def variants(given: Values, declared: Mapping[str, Input]) -> Iterator[Variant]:
    """Every edge input, the likeliest to matter first."""
    for variant in _all(given):
        if all(_allowed(value, declared.get(name)) for name, value in variant.values.items()):
            yield variant


def _all(given: Values) -> Iterator[Variant]:
    floats = {name: value for name, value in given.items() if _is_float(value)}
    for name, tensor in floats.items():
        yield from (
            replace(one, words=f"{one.words} in {name}", values={**given, **one.values})
            for one in _of_scores(name, tensor)
        )
        for words, made in _of_float(tensor):
            ordinary = "scaled" not in words
            yield Variant(f"{words} in {name}", {**given, name: made}, judge_loss=ordinary)
    for name, value in given.items():
        if isinstance(value, Tensor) and value.dtype == torch.bool:
            for words, mask in _of_mask(value):
                yield Variant(f"{words} in {name}", {**given, name: mask}, structural=True)
        elif isinstance(value, Tensor) and not value.is_floating_point() and value.numel():
            for words, made in _of_whole(value):
                yield Variant(f"{words} in {name}", {**given, name: made})
    yield from _together(given, floats)
    yield from _batches(given)


def _together(given: Values, floats: Values) -> Iterator[Variant]:
    """Two inputs alike, and the simplest edges in all of them at once."""
    for one in floats:
        for other in floats:
            if one < other and floats[one].shape == floats[other].shape:
                yield Variant(f"{other} equal to {one}", {**given, other: floats[one].clone()})
    if len(floats) > 1:
        patterns = {name: dict(_of_float(value)) for name, value in floats.items()}
        for words in (
            "zeros",
            "ones",
            "equal elements",
            "one-hot rows",
            "the identity",
            "identities",
        ):
            made = {name: found[words] for name, found in patterns.items() if words in found}
            if len(made) > 1:
                yield Variant(f"{words} everywhere", {**given, **made})


def _of_float(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    if not tensor.numel():
        return
    finite = tensor[torch.isfinite(tensor)]
    signed = bool((finite < 0).any())
    unit = not signed and bool((finite <= 1).all())
    yield "zeros", torch.zeros_like(tensor)
    yield "ones", torch.ones_like(tensor)
    if tensor.dim():
        yield "one zero", _with(tensor, (0,) * tensor.dim(), 0.0)
        yield "one 1", _with(tensor, (0,) * tensor.dim(), 1.0)
        yield "a row of zeros", _with(tensor, 0, 0.0)
        yield "equal elements", tensor.reshape(-1)[0].expand_as(tensor).clone()
        yield "one-hot values", _with(torch.zeros_like(tensor), (0,) * tensor.dim(), 1.0)
        if tensor.dim() > 1:
            yield "one-hot rows", _one_hot(tensor)
            yield "equal rows", tensor[:1].expand_as(tensor).clone()
            yield "a constant row", _with(tensor, 0, tensor[0].reshape(-1)[0])
        if tensor.shape[0] > 1:
            yield "two equal rows", _with(tensor, 1, tensor[0])
        if tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]:
            yield "the identity", torch.eye(tensor.shape[0]).to(tensor)
        if tensor.dim() > 2 and tensor.shape[-1] == tensor.shape[-2]:
            yield "identities", torch.eye(tensor.shape[-1]).to(tensor).expand_as(tensor).clone()
    if signed:
        yield "minus ones", -torch.ones_like(tensor)
        yield "positive values", tensor.abs()
        yield "negative values", -tensor.abs()
    for scale in TINY:
        yield f"values scaled by {scale:g}", tensor * scale
    if not unit:
        yield f"values scaled by {HUGE:g}", tensor * HUGE
        yield "large values", torch.full_like(tensor, 100.0)
        if tensor.dim():
            yield "one large value", _with(tensor, (0,) * tensor.dim(), 200.0)
        if signed:
            yield "large negative values", torch.full_like(tensor, -100.0)


def _of_scores(name: str, tensor: Tensor) -> Iterator[Variant]:
    """What masking makes of a floating argument whose name says that it is a score or a mask."""
    if not tensor.numel() or not tensor.dim():
        return
    hidden, shown = -math.inf, 0.0
    mask = _MASK.search(name) is not None
    if mask and bool(((tensor == 0) | (tensor == 1)).all()) and bool((tensor == 1).any()):
        hidden, shown = 0.0, 1.0  # it is multiplied, not added
    elif not mask and not _SCORE.search(name):
        return
    elif mask and bool((tensor > 0).any()):
        return  # weights of some other kind
    rows = {f"a row of {hidden:g}": _with(tensor, 0, hidden)} if tensor.dim() > 1 else {}
    rows[f"one {hidden:g}"] = _with(tensor, (0,) * tensor.dim(), hidden)
    rows[f"all {hidden:g}"] = torch.full_like(tensor, hidden)
    rows[f"all {shown:g}"] = torch.full_like(tensor, shown)
    for words, made in rows.items():
        # Scores of nothing but -inf may have no loss; a mask is there to hide all that there is.
        yield Variant(words, {name: made}, structural=mask, judge_loss=mask)


def _of_mask(mask: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield "all False", torch.zeros_like(mask)
    yield "all True", torch.ones_like(mask)
    if mask.dim() > 1 and mask.numel():
        yield "a row of False", _with(mask, 0, False)
        yield "a row of True", _with(mask, 0, True)


def _of_whole(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Whole numbers are often indices or labels: only such as were given, and 0."""
    yield "zeros", torch.zeros_like(tensor)
    yield "the smallest alone", torch.full_like(tensor, int(tensor.min()))
    yield "the largest alone", torch.full_like(tensor, int(tensor.max()))


def _batches(given: Values) -> Iterator[Variant]:
    """Fewer items: along the first dimension that the tensors share."""
    sizes = [value.shape[0] for value in given.values() if _has_rows(value)]
    if not sizes:
        return
    size = max(sizes, key=sizes.count)
    if size > 1:
        yield Variant("a single item", sliced(given, size, 1, first_only=True), structural=True)
    if size > 0:
        # The mean over nothing is NaN in every loss, so a bad loss is no news here.
        empty = sliced(given, size, 0, first_only=True)
        yield Variant("an empty batch", empty, judge_loss=False)


def sliced(values: Values, size: int, count: int, *, first_only: bool = False) -> Values:
    """Every dimension of that size cut to `count`, in all tensors at once."""
    made = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            dims = range(min(1, value.dim()) if first_only else value.dim())
            for dim in dims:
                if value.shape[dim] == size:
                    value = value.narrow(dim, 0, count)
            value = value.clone()
        made[name] = value
    return made


def _allowed(value: Any, declared: Input | None) -> bool:
    if declared is None or not isinstance(value, Tensor):
        return True
    if not value.numel():
        return not declared.nonempty
    if declared.range is None or value.dtype == torch.bool:
        return True
    low, high = declared.range
    return bool(((value >= low) & (value <= high)).all())


def edges_of_range(given: Values, declared: Mapping[str, Input]) -> Iterator[Variant]:
    """The ends of each declared range, and the nearest numbers inside it."""
    for name, tensor in given.items():
        limits = declared[name].range if name in declared else None
        if limits is None or not _is_float(tensor):
            continue
        low, high = (torch.tensor(limit).to(tensor) for limit in limits)
        ends = {
            "the lower end": low,
            "the upper end": high,
            "just above the lower end": torch.nextafter(low, high),
            "just below the upper end": torch.nextafter(high, low),
        }
        for words, end in ends.items():
            yield Variant(f"{words} in {name}", {**given, name: end.expand_as(tensor).clone()})
            if tensor.dim():
                made = _with(tensor, (0,) * tensor.dim(), end)
                yield Variant(f"{words} in an element of {name}", {**given, name: made})


def _with(tensor: Tensor, index: Any, value: Any) -> Tensor:
    made = tensor.clone()
    made[index] = value
    return made


def _one_hot(tensor: Tensor) -> Tensor:
    made = torch.zeros_like(tensor)
    made[..., 0] = 1
    return made


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
