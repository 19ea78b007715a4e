"""The order and the folding of the table: one row a parameter, or one a module."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gradscope.errors import GradscopeError
from gradscope.norms.facts import Row

SORTS = ("module", "norm")


def arrange(rows: Sequence[Row], norm_type: float, depth: int | None, sort: str) -> list[Row]:
    """`depth` counts the dots that stay in a name; None folds nothing."""
    if sort not in SORTS:
        raise GradscopeError(f"--sort {sort} is no order", help=f"one of: {', '.join(SORTS)}")
    arranged = list(rows) if depth is None else fold(rows, norm_type, depth)
    return sorted(arranged, key=lambda row: -row.norm) if sort == "norm" else arranged


def fold(rows: Sequence[Row], norm_type: float, depth: int) -> list[Row]:
    """Join the rows whose names agree in their first `depth` + 1 parts."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(".".join(row.name.split(".")[: depth + 1]), []).append(row)
    return [
        group[0] if len(group) == 1 else _joined(name, group, norm_type)
        for name, group in groups.items()
    ]


def _joined(name: str, group: Sequence[Row], norm_type: float) -> Row:
    clipped = [row.clipped for row in group if row.clipped is not None]
    dtypes = sorted({row.dtype for row in group})
    return Row(
        name=f"{name}.* ({len(group)})",
        shape=(),
        dtype="/".join(dtypes),
        numel=sum(row.numel for row in group),
        norm=p_norm((row.norm for row in group), norm_type),
        max_abs=max(row.max_abs for row in group),
        zeros=sum(row.zeros for row in group),
        bad=sum(row.bad for row in group),
        clipped=p_norm(clipped, norm_type) if len(clipped) == len(group) else None,
        update=max((row.update for row in group if row.update is not None), default=None),
    )


def p_norm(norms: Iterable[float], p: float) -> float:
    """The norm of a vector from the norms of its parts."""
    parts = list(norms)
    largest = max(parts, default=0.0)
    if math.isinf(p) or not 0 < largest < math.inf:
        return largest
    return float(largest * sum((part / largest) ** p for part in parts) ** (1 / p))
