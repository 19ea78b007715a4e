"""The rows of the tables: their order, joined to one a module, and joined from the parts that each
rank has measured. Pure."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gradscope.dataclass import dataclass
from gradscope.facts import LayerSize
from gradscope.norms.facts import Measured, NormOptions, Row, clip_coefficient

SORTS = ("module", "norm")

_FEWEST = 4  # layers that a gradient can be followed through


@dataclass(frozen=True, slots=True)
class Branch:
    """A row of the tree: a parameter, or a module with what lies below it joined."""

    label: str
    indent: int
    row: Row
    is_module: bool


def arrange(rows: Sequence[Row], norm_type: float, depth: int | None, sort: str) -> list[Row]:
    """`depth` counts the dots that stay in a name; None folds nothing. `sort` is one of SORTS."""
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
        **_together(group, norm_type),
        clipped=p_norm(clipped, norm_type) if len(clipped) == len(group) else None,
        moved=_most(group),
    )


def _together(rows: Sequence[Row], p: float) -> dict[str, Any]:
    """The measurements of several rows as those of one."""
    return {
        "norm": p_norm((row.norm for row in rows), p),
        "max_abs": max(row.max_abs for row in rows),
        "zeros": sum(row.zeros for row in rows),
        "bad": sum(row.bad for row in rows),
    }


def _most(group: Sequence[Row]) -> tuple[float, float] | None:
    """The largest relative update of the group."""
    moved = [(row.update, row.moved) for row in group if row.update is not None]
    return max(moved, key=lambda one: one[0])[1] if moved else None


_Tree = dict[str, "Row | _Tree"]


def branches(rows: Sequence[Row], norm_type: float) -> list[Branch]:
    """The rows as a tree of modules; a module with one entry shares a line with it."""
    tree: _Tree = {}
    for row in rows:
        *path, last = row.name.split(".")
        node = tree
        for part in path:
            below = node.setdefault(part, {})
            if isinstance(below, Row):  # a tensor and a module of one name
                return [Branch(row.name, 0, row, False) for row in rows]
            node = below
        if last in node:
            return [Branch(row.name, 0, row, False) for row in rows]
        node[last] = row
    return list(_grown(tree, 0, norm_type))


def _grown(tree: _Tree, indent: int, norm_type: float) -> Iterator[Branch]:
    for label, below in tree.items():
        while not isinstance(below, Row) and len(below) == 1:
            ((name, below),) = below.items()
            label = f"{label}.{name}"
        if isinstance(below, Row):
            yield Branch(label, indent, below, False)
            continue
        inner = list(_grown(below, indent + 1, norm_type))
        rows = [branch.row for branch in inner if not branch.is_module]
        yield Branch(label, indent, _joined(label, rows, norm_type), True)
        yield from inner


def fold_layers(layers: Sequence[LayerSize], depth: int) -> list[LayerSize]:
    """Join the modules whose names agree in their first `depth` + 1 parts: the last result is
    what the outer module gives."""
    found: dict[str, LayerSize] = {}
    for layer in layers:
        name = layer.layer
        if layer.in_module:
            name = ".".join(name.split(".")[: depth + 1])
        found[name] = replace(layer, layer=name)
    return list(found.values())


def fitting(layers: Sequence[LayerSize], most: int) -> list[LayerSize]:
    """Folded as little as brings them down to `most` rows; as they are where nothing does, or where
    too little would be left to compare."""
    deepest = max((layer.layer.count(".") for layer in layers if layer.in_module), default=0)
    ways = (fold_layers(layers, depth) for depth in range(deepest, -1, -1))
    found = next((way for way in ways if len(way) <= most), layers)
    return list(found if len(found) >= min(_FEWEST, len(layers)) else layers)


def p_norm(norms: Iterable[float], p: float) -> float:
    """The norm of a vector from the norms of its parts."""
    parts = list(norms)
    largest = max(parts, default=0.0)
    if math.isinf(p) or not 0 < largest < math.inf:
        return largest
    return float(largest * sum((part / largest) ** p for part in parts) ** (1 / p))


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
    here = {row.name for row in own.rows}
    elsewhere = (next(iter(parts[name].values())) for name in parts if name not in here)
    rows = (
        _whole(row, tuple(parts[row.name].values()), p) if row.shard is not None else row
        for row in (*own.rows, *elsewhere)
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
    names = dict.fromkeys((*ranks[0].parts[position], *holders))
    norms = (
        one.parts[position].get(name, 0.0) for name in names for one in holders.get(name, ranks[:1])
    )
    return p_norm(norms, p)


def _whole(row: Row, parts: Sequence[Row], p: float) -> Row:
    return replace(
        row,
        **_together(parts, p),
        moved=_moved([part.moved for part in parts if part.moved is not None]),
        values=(),
        clipped_values=(),
    )


def _moved(parts: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    moved, sizes = zip(*parts, strict=True) if parts else ((), ())
    return (math.hypot(*moved), math.hypot(*sizes)) if moved else None
