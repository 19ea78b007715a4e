"""What is in a tensor (as given by `plain` or `numbers`): counts, and the places of what is bad."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import Operand
from gradscope.record.finite import dtype_of, ends_of, looks_finite, pieces

_ROWS_SHOWN = 8
Place = TypeVar("Place", int, torch.Tensor)


def census(tensor: torch.Tensor, role: str = "", of: torch.Tensor | None = None) -> Operand:
    """Count what is in a tensor, or in the numbers `of` one, in a few passes whatever its size."""
    nan = posinf = neginf = nonzero = 0
    ends: list[float] = []
    for piece in pieces(tensor):
        # count_nonzero and not sum: a sum of booleans is made of int64.
        nonzero += _count(piece)
        lowest, highest = ends_of(piece)
        if not math.isfinite(lowest - highest):
            nan += _count(torch.isnan(piece))
            posinf += _count(torch.isposinf(piece))
            neginf += _count(torch.isneginf(piece))
            lowest, highest = _finite_ends(piece)
        ends += (end for end in (lowest, highest) if math.isfinite(end))
    return replace(
        plainly(tensor if of is None else of, role),
        nan=nan,
        posinf=posinf,
        neginf=neginf,
        zeros=tensor.numel() - nonzero,
        min=min(ends, default=None),
        max=max(ends, default=None),
    )


def plainly(tensor: torch.Tensor, role: str) -> Operand:
    """What a tensor is, without a look at what is in it."""
    shape, dtype, device = tuple(tensor.shape), dtype_of(tensor), str(tensor.device)
    return Operand(role, shape=shape, dtype=dtype, device=device, numel=tensor.numel())


def _finite_ends(piece: torch.Tensor) -> tuple[float, float]:
    """Of its finite elements. To fill the others is ten times as fast as to take these out."""
    high, low = (
        torch.nan_to_num(piece, nan=end, posinf=end, neginf=end) for end in (math.inf, -math.inf)
    )
    return ends_of(high)[0], ends_of(low)[1]


@dataclass(frozen=True, slots=True)
class Places:
    """Where a tensor is bad, as the fields of an event: how often, the first element in row-major
    order, and the positions along dimension 0, the first few of them and how many."""

    bad: int
    numel: int
    index: tuple[int, ...] = ()
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
                first = before + first_of(bad)
            # Whole rows, or a part of one, which a piece before this one may have counted.
            hit = bad.reshape(-1, min(row, bad.numel())).any(1) if row else bad.new_empty(0)
            start = before // row if row else 0
            if start != last or bad.numel() >= row:
                row_count += _count(hit)
                if len(rows) < _ROWS_SHOWN:
                    # One by one: within torch.func, torch 2.6 makes no list of a tensor.
                    some = hit.nonzero().reshape(-1)[: _ROWS_SHOWN - len(rows)]
                    rows += (start + int(one.item()) for one in some)
            last = start
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


def first_of(mask: torch.Tensor) -> int:
    """The position of the first element that is marked, in row-major order."""
    return int(mask.reshape(-1).to(torch.uint8).argmax().item())


def unravel(flat: Place, shape: Sequence[int]) -> tuple[Place, ...]:
    """By its place in row-major order. `torch.unravel_index` would import sympy: 0.3 s."""
    index: list[Place] = []
    for size in reversed(shape):
        index.insert(0, flat % size)
        flat = flat // size
    return tuple(index)
