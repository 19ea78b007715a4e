"""What is in a tensor (as given by `plain` or `numbers`): counts, and the places of what is bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gradscope.record.finite import looks_finite
from gradscope.record.pieces import pieces

_ROWS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Census:
    """Counts over one tensor; `min` and `max` are over its finite elements."""

    numel: int
    nan: int
    posinf: int
    neginf: int
    zeros: int
    min: float | None
    max: float | None

    @property
    def bad(self) -> int:
        return self.nan + self.posinf + self.neginf


def census(tensor: torch.Tensor) -> Census:
    """Count what is in a tensor, in a few passes whatever its size."""
    nan = posinf = bad = nonzero = 0
    ends: list[float] = []
    for piece in pieces(tensor):
        kept = piece
        # count_nonzero and not sum: a sum of booleans is made of int64.
        nonzero += _count(piece)
        if not looks_finite(piece):
            finite = torch.isfinite(piece)
            bad += piece.numel() - _count(finite)
            nan += _count(torch.isnan(piece))
            posinf += _count(torch.isposinf(piece))
            kept = piece[finite]
        if kept.numel():
            ends += (float(value.item()) for value in torch.aminmax(kept))
    return Census(
        numel=tensor.numel(),
        nan=nan,
        posinf=posinf,
        neginf=bad - nan - posinf,
        zeros=tensor.numel() - nonzero,
        min=min(ends, default=None),
        max=max(ends, default=None),
    )


@dataclass(frozen=True, slots=True)
class Places:
    """Where a tensor is bad: how often, the first element in row-major order, and the positions
    along dimension 0, the first few of them and how many."""

    count: int
    numel: int
    first: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    row_count: int = 0


def not_finite(values: torch.Tensor) -> torch.Tensor:
    return ~torch.isfinite(values)


def places(
    tensor: torch.Tensor, is_bad: Callable[[torch.Tensor], torch.Tensor] = not_finite
) -> Places:
    """The places of NaN, or of what `is_bad` says of values that are not finite."""
    shape = tuple(tensor.shape)
    count = before = row_count = 0
    row = tensor.numel() // shape[0] if shape and shape[0] else 0
    first: int | None = None
    rows: list[int] = []
    last = -1  # the last row that was counted
    for piece in pieces(tensor):
        bad = None if looks_finite(piece) else is_bad(piece)
        if bad is not None and (found := _count(bad)):
            count += found
            if first is None:
                first = before + int(bad.reshape(-1).to(torch.uint8).argmax().item())
            if row:
                each = bad.reshape(-1, row) if bad.numel() >= row else bad.reshape(1, -1)
                hit = each.any(1).nonzero().reshape(-1) + before // row
                hit = hit[hit != last]
                # One by one: within torch.func, torch 2.6 makes no list of a tensor.
                rows += (int(one.item()) for one in hit[: _ROWS_SHOWN - len(rows)])
                row_count += hit.numel()
                last = int(hit[-1].item()) if hit.numel() else last
        before += piece.numel()
    index = unravel(first, shape) if first is not None else ()
    return Places(count, tensor.numel(), index, tuple(rows), row_count)


def rows_of_neginf(tensor: torch.Tensor) -> int:
    """How many rows along the last dimension are -inf throughout."""
    if not tensor.dim() or not tensor.numel():
        return 0
    width, found, whole = tensor.shape[-1], 0, True
    before = 0
    for piece in pieces(tensor):
        before += piece.numel()
        if piece.shape[-1] == width:
            found += _count(torch.isneginf(piece).all(-1))
            continue
        whole = whole and bool(torch.isneginf(piece).all())  # a part of one row
        if before % width == 0:
            found, whole = found + whole, True
    return found


def _count(tensor: torch.Tensor) -> int:
    return int(torch.count_nonzero(tensor).item())


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(reversed(index))
