"""The norms of whole gradients, from those of the parts that each rank has measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gradscope.norms.facts import Measured, NormOptions, Row, clip_coefficient
from gradscope.norms.rows import p_norm

Parts = dict[tuple[int, ...], Row]  # of one leaf, each once


def joined(own: Measured, others: Sequence[Measured], options: NormOptions) -> Measured:
    """What this rank has measured, with the other ranks' parts of what is sharded. In float64:
    nobody has computed the whole in torch."""
    if not any(own.parts):
        return own
    ranks = (own, *others)
    parts: dict[str, Parts] = {}
    for row in (row for one in ranks for row in one.rows if row.shard is not None):
        parts.setdefault(row.name, {}).setdefault(row.shard or (), row)
    holders = {
        name: [_rank_of(shard, name, ranks) for shard in found] for name, found in parts.items()
    }
    p = options.norm_type
    totals = tuple(
        _total(position, ranks, holders, p)
        for position in range(min(len(one.parts) for one in ranks))
    )
    total = totals[own.shown] if own.shown < len(totals) else math.nan
    coefficient = None
    if options.max_norm is not None:
        coefficient = clip_coefficient(total, options.max_norm)
    rows = (
        _whole(row, tuple(parts[row.name].values()), p) if row.shard is not None else row
        for row in own.rows
    )
    return replace(
        own,
        steps=own.steps[: len(totals)],
        totals=totals,
        exact=totals,
        coefficient=coefficient,
        rows=tuple(
            row if coefficient is None else replace(row, clipped=row.norm * coefficient)
            for row in rows
        ),
    )


def _rank_of(shard: tuple[int, ...], name: str, ranks: Sequence[Measured]) -> Measured:
    """The first that holds it."""
    return next(
        one for one in ranks if any((row.name, row.shard) == (name, shard) for row in one.rows)
    )


def _total(
    position: int, ranks: Sequence[Measured], holders: dict[str, list[Measured]], p: float
) -> float:
    """At the step in that position; not finite where it is not on any rank."""
    known = [one.totals[position] for one in ranks]
    bad = [total for total in known if not math.isfinite(total)]
    if bad:
        return bad[0]
    own = ranks[0].parts[position]
    norms = (
        one.parts[position].get(name, 0.0) for name in own for one in holders.get(name, ranks[:1])
    )
    return p_norm(norms, p)


def _whole(row: Row, parts: Sequence[Row], p: float) -> Row:
    return replace(
        row,
        norm=p_norm((part.norm for part in parts), p),
        max_abs=max(part.max_abs for part in parts),
        zeros=sum(part.zeros for part in parts),
        bad=sum(part.bad for part in parts),
        moved=_moved([part.moved for part in parts if part.moved is not None]),
        values=(),
        clipped_values=(),
    )


def _moved(parts: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    moved, sizes = zip(*parts, strict=True) if parts else ((), ())
    return (math.hypot(*moved), math.hypot(*sizes)) if moved else None
