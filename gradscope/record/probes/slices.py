"""The first rows of what a Function is called with, for an experiment that the whole is too large
for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from gradscope.record.probes.calls import NoVerdict


def first_rows(
    cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], apply: Callable[..., Any], most: int
) -> tuple[tuple[Any, ...], int, int]:
    """The arguments with so many rows (dimension 0) that `most` elements are left, how many rows
    these are, and of how many. NoVerdict where forward gives something else for a slice than the
    slice of what it gives for all: it does not treat its rows one by one."""

    def forward(given: tuple[Any, ...]) -> list[Any]:
        own = (one.clone() if isinstance(one, Tensor) else one for one in given)
        with torch.no_grad():
            result = apply(cls, *own, **kwargs)
        return list(result) if isinstance(result, tuple) else [result]

    whole = forward(args)
    for part, rows, of in _slices(args, most):
        try:
            given = forward(part)
        except Exception:  # these arguments do not go together: another slice may
            continue
        if all(_is_slice(*pair, rows, of) for pair in zip(given, whole, strict=True)):
            return part, rows, of
    raise NoVerdict("its forward does not treat the rows of a batch one by one")


def _slices(args: tuple[Any, ...], most: int) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """Of every tensor that is as long as the largest one, else of that one alone."""
    sizes = {i: one.numel() for i, one in enumerate(args) if isinstance(one, Tensor) and one.dim()}
    largest = max(sizes, key=sizes.__getitem__)
    of = args[largest].shape[0]
    for chosen in ([i for i in sizes if args[i].shape[0] == of], [largest]):
        room = most - sum(size for i, size in sizes.items() if i not in chosen)
        rows = room // sum(sizes[i] // of for i in chosen)
        if 0 < rows < of:
            yield tuple(a[:rows] if i in chosen else a for i, a in enumerate(args)), rows, of


def _is_slice(given: Any, whole: Any, rows: int, of: int) -> bool:
    if not isinstance(whole, Tensor) or not isinstance(given, Tensor):
        return type(given) is type(whole)
    if whole.dim() and whole.shape[0] == of and given.shape == (rows, *whole.shape[1:]):
        whole = whole[:rows]
    if given.shape != whole.shape:
        return False
    # Kernels may sum in another order; a statistic over all rows is off by far more.
    near = torch.finfo(whole.dtype).eps ** 0.5 if whole.is_floating_point() else 0.0
    return torch.allclose(given, whole, rtol=near, atol=near, equal_nan=True)
