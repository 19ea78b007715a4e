"""Edge inputs made from given ones. Nothing is made that the user has declared not to occur."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor

from gradscope.check.stress.edge_values import (
    LARGE,
    first_of,
    of_float,
    of_mask,
    of_whole,
    with_value,
)
from gradscope.check.stress.scores import Reads
from gradscope.config import Input

_TOGETHER = ("zeros", "ones", "equal elements", "one-hot rows", "the identity", "identities")
Values = dict[str, Any]


class BadLoss(Enum):
    """Which losses tell against a function at some inputs."""

    ANY = auto()  # NaN and inf
    NAN = auto()  # inf may be right: the log of a probability that is 0
    NONE = auto()  # numbers so large, or so few, that the loss says nothing


@dataclass(frozen=True, slots=True)
class Variant:
    """Values by name, and how they were made: "zeros in x".

    `ordinary` ones hold numbers that the user declared, or change which of the given ones count
    or how many there are: a bad loss is an error there too. `half` ones are in another dtype.
    """

    words: str
    values: Values = field(repr=False)
    bad_loss: BadLoss = BadLoss.ANY
    ordinary: bool = False
    half: bool = False


def variants(given: Values, declared: Mapping[str, Input], read: Reads) -> Iterator[Variant]:
    """Every edge input, the likeliest to matter first. `read` is how the function reads them."""
    for variant in _all(given, declared, read):
        if all(_allowed(value, declared.get(name)) for name, value in variant.values.items()):
            yield variant


def _all(given: Values, declared: Mapping[str, Input], read: Reads) -> Iterator[Variant]:
    floats = {name: value for name, value in given.items() if is_float(value)}
    for name, value in given.items():
        if isinstance(value, Tensor) and value.numel():
            for variant in _of_one(name, value, declared.get(name), read):
                words = f"{variant.words} in {name}"
                yield replace(variant, words=words, values={**given, **variant.values})
    for words, made in _together(floats):
        yield Variant(words, {**given, **made})
    yield from _batches(given)


def _of_one(name: str, tensor: Tensor, declared: Input | None, read: Reads) -> Iterator[Variant]:
    """The edges of one input, which alone is in the values."""
    promised = declared is not None and declared.range is not None
    if tensor.dtype == torch.bool:
        for words, made in of_mask(tensor, False, True):
            yield Variant(words, {name: made}, ordinary=True)
        return
    if _is_mask(tensor, declared, multiplies=name in read.factors):
        for words, made in of_mask(tensor, 0, 1):
            yield Variant(words, {name: made}, ordinary=True)
    if tensor.is_floating_point():
        if name in read.scores and tensor.dim():
            yield from _of_scores(name, tensor)
        for words, made in of_float(tensor):
            judged = BadLoss.NONE if "scaled" in words and not promised else BadLoss.ANY
            yield Variant(words, {name: made}, judged, ordinary=promised)
    elif not tensor.is_complex():
        for words, made in of_whole(tensor):  # 0 is an ordinary label, index and length
            yield Variant(words, {name: made}, ordinary=True)


def _is_mask(tensor: Tensor, declared: Input | None, *, multiplies: bool) -> bool:
    """Whether a tensor of 0 and 1 says which elements count. Ones alone may be any number: that
    they are a factor, or that no gradient is wanted, tells them apart."""
    if not tensor.dim() or not bool(((tensor == 0) | (tensor == 1)).all()):
        return False
    both = bool((tensor == 0).any()) and bool((tensor == 1).any())
    unwanted = declared is not None and declared.requires_grad is False
    return multiplies or (tensor.is_floating_point() and (both or unwanted))


def _of_scores(name: str, tensor: Tensor) -> Iterator[Variant]:
    """What masking makes of a score, or of a mask that is added to one: 0, or far below it."""
    added = bool(((tensor == 0) | (tensor <= -LARGE)).all())
    # Scores of nothing but -inf may have no loss; a mask is there to hide all that there is.
    judged = BadLoss.ANY if added else BadLoss.NONE
    one = BadLoss.ANY if added else BadLoss.NAN
    if tensor.dim() > 1:
        row = with_value(tensor, 0, -math.inf)
        yield Variant("a row of -inf", {name: row}, judged, ordinary=added)
    hidden = with_value(tensor, first_of(tensor), -math.inf)
    yield Variant("one -inf", {name: hidden}, one, ordinary=True)
    everything = torch.full_like(tensor, -math.inf)
    yield Variant("all -inf", {name: everything}, judged, ordinary=added)
    if added:
        yield Variant("all 0", {name: torch.zeros_like(tensor)}, ordinary=True)


def _together(floats: Values) -> Iterator[tuple[str, Values]]:
    """Two inputs alike, opposite or along one line, and the simplest edges in all at once."""
    for one in floats:
        for other in floats:
            if one < other and floats[one].shape == floats[other].shape:
                relations = {
                    "equal to": floats[one].clone(),
                    "opposite to": -floats[one],
                    "twice": 2 * floats[one],
                }
                for words, made in relations.items():
                    if _fits(made, floats[other]):
                        yield f"{other} {words} {one}", {other: made}
    if len(floats) > 1:
        patterns = {name: dict(of_float(value)) for name, value in floats.items()}
        for words in _TOGETHER:
            made = {name: found[words] for name, found in patterns.items() if words in found}
            if len(made) > 1:
                yield f"{words} everywhere", made


def _fits(made: Tensor, given: Tensor) -> bool:
    """Whether it is of the same kind: probabilities stay between 0 and 1, distances positive."""
    negative, large = bool((given < 0).any()), bool((given > 1).any())
    return (negative or bool((made >= 0).all())) and (negative or large or bool((made <= 1).all()))


def _batches(given: Values) -> Iterator[Variant]:
    """Fewer items: along the first dimension that the tensors share."""
    sizes = [value.shape[0] for value in given.values() if _has_rows(value)]
    if not sizes:
        return
    size = max(sizes, key=sizes.count)
    if size > 1:
        yield Variant("a single item", sliced(given, size, 1, first_only=True), ordinary=True)
    if size > 0:
        # The mean over nothing is NaN in every loss, so a bad loss is no news here.
        empty = sliced(given, size, 0, first_only=True)
        yield Variant("an empty batch", empty, BadLoss.NONE)


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


def halves(given: Values) -> Iterator[Variant]:
    """The given inputs in each half precision."""
    for dtype in (torch.float16, torch.bfloat16):
        made = {name: v.to(dtype) if is_float(v) else v for name, v in given.items()}
        yield Variant(str(dtype).removeprefix("torch."), made, half=True)


def edges_of_range(given: Values, declared: Mapping[str, Input]) -> Iterator[Variant]:
    """The ends of each declared range, and the nearest numbers inside it."""
    for name, tensor in given.items():
        limits = declared[name].range if name in declared else None
        if limits is None or not is_float(tensor):
            continue
        low, high = (torch.tensor(limit).to(tensor) for limit in limits)
        ends = {
            "the lower end": low,
            "the upper end": high,
            "just above the lower end": torch.nextafter(low, high),
            "just below the upper end": torch.nextafter(high, low),
        }
        for words, end in ends.items():
            whole = {**given, name: end.expand_as(tensor).clone()}
            yield Variant(f"{words} in {name}", whole, ordinary=True)
            if tensor.dim():
                one = {**given, name: with_value(tensor, first_of(tensor), end)}
                yield Variant(f"{words} in an element of {name}", one, ordinary=True)


def _allowed(value: Any, declared: Input | None) -> bool:
    if declared is None or not isinstance(value, Tensor):
        return True
    if not value.numel():
        return not declared.nonempty
    if declared.range is None or value.dtype == torch.bool:
        return True
    low, high = declared.range
    return bool(((value >= low) & (value <= high)).all())


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
