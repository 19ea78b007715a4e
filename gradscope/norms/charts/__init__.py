"""The pictures of the page: matplotlib draws them, the page gives them its colours.

Everything is told by place, shape or lightness as well, so that it reads in black and white: each
series has a mark of its own, the shades get lighter steadily, and what is not finite is crossed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradscope.dataclass import dataclass
from gradscope.facts import Leaf, text_of
from gradscope.norms.charts.canvas import (
    CROSS,
    FILLED_CIRCLE,
    FRAME,
    OPEN_SQUARE,
    Canvas,
    decades,
    handle,
    has_logarithm,
    missing,
    settings,
)
from gradscope.norms.charts.inline import STYLE, Ink
from gradscope.report.printable import clean

if TYPE_CHECKING:
    from matplotlib.collections import QuadMesh

__all__ = ["STYLE", "Series", "dots", "heat_map", "lines", "missing"]

_WIDTH, _HEIGHT = 820, 230  # of a line chart, without what stands around it
_DOTS, _ROW = 720, 22  # the width of a dot plot and the height of its rows
_CELL = 16
_NAME = 48  # characters of a name that are shown
_MARKED = 120  # places up to which each has a mark; beyond it only what is not finite has
_LABELS = 12  # along the steps
_BELOW = 26  # pixels to the legend, the labels of the ticks between
_KEY, _BAR = 120, 12  # the key of the heat map
_MOST_COLUMNS = 60  # of the heat map: more steps are joined, the largest norm counts
_OUTERMOST = 0.05  # of the norms on either side share the last shade: one spike is no scale
_SHADES = 32  # of a key with 50, matplotlib makes a bitmap, which a page without network refuses

_KINDS = (FILLED_CIRCLE, OPEN_SQUARE)


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a value for each place (None: nothing there)."""

    label: str
    values: Sequence[float | None]


@settings()
def lines(
    label: str,
    series: Sequence[Series],
    places: Sequence[str],
    axis: str,
    bound: float | None = None,
) -> str:
    """Lines over `places`, which are called `axis`. `bound` is a max_norm."""
    canvas = Canvas(_WIDTH, _HEIGHT)
    axes = canvas.axes
    axes.set_xlim(0, max(len(places) - 1, 1))
    axes.set_xlabel(axis, loc="right")
    every = max(1, math.ceil(len(places) / _LABELS))
    axes.set_xticks(range(0, len(places), every), places[::every])
    decades(axes.yaxis, [*(value for one in series for value in one.values), bound])
    for number, one in enumerate(series):
        axes.plot(list(map(_log, one.values)), **{**_KINDS[number], "marker": ""}, clip_on=False)
        tips = [f"{axis} {place}: {_shown(v)}" for place, v in zip(places, one.values, strict=True)]
        _marks(canvas, number, one, tips, in_rows=False)
    if bound is not None:
        _bound(canvas, bound)
    _legend(canvas, series, in_rows=False)
    return canvas.svg(label, fit=True)


@settings()
def dots(label: str, series: Sequence[Series], names: Sequence[str]) -> str:
    """A row for each name, with the mark of each series on one logarithmic axis."""
    canvas = Canvas(_DOTS, _ROW * len(names))
    axes = canvas.axes
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), list(map(_short, names)), color=Ink.TEXT)
    decades(axes.xaxis, [value for one in series for value in one.values])
    for number, one in enumerate(series):
        tips = [
            f"{one.label} of {clean(name)}: {_shown(value)}"
            for name, value in zip(names, one.values, strict=True)
        ]
        _marks(canvas, number, one, tips, in_rows=True)
    _legend(canvas, series, in_rows=True)
    return canvas.svg(label, fit=True)


def _marks(canvas: Canvas, number: int, one: Series, tips: Sequence[str], *, in_rows: bool) -> None:
    """At the end of the axis: what has no logarithm."""
    found: dict[str, list[tuple[float, float, str]]] = {"series": [], "zero": [], "lost": []}
    for at, (value, tip) in enumerate(zip(one.values, tips, strict=True)):
        if has_logarithm(value):
            kind, place = "series", math.log10(value)
        elif value == 0:
            kind, place = "zero", 0.0
        elif _is_lost(value):
            kind, place = "lost", 1.0
        else:
            continue
        found[kind].append((place, at, tip) if in_rows else (at, place, tip))
    axes, style = canvas.axes, _KINDS[number]
    ends = axes.get_yaxis_transform() if in_rows else axes.get_xaxis_transform()
    if in_rows or len(tips) <= _MARKED:
        canvas.marks(f"series-{number}", found["series"], style)
    zero = {**style, "marker": _zero(in_rows)}
    canvas.marks(f"zero-{number}", found["zero"], zero, transform=ends)
    canvas.marks(f"lost-{number}", found["lost"], CROSS, transform=ends)


def _zero(in_rows: bool) -> str:
    """A triangle that points off the axis."""
    return "<" if in_rows else "v"


def _bound(canvas: Canvas, bound: float) -> None:
    axes, y = canvas.axes, math.log10(bound)
    axes.axhline(y, color=Ink.TEXT, linestyle=(0, (6, 4)), linewidth=1)
    axes.annotate(
        f"max_norm {text_of(bound, 4)}", (1, y), (0, 6), ha="right",
        xycoords=axes.get_yaxis_transform(), textcoords="offset points",
        bbox={"color": Ink.PAGE, "pad": 1},
    )  # fmt: skip


def _legend(canvas: Canvas, series: Sequence[Series], *, in_rows: bool) -> None:
    values = [value for one in series for value in one.values]
    handles = [handle(one.label, style) for one, style in zip(series, _KINDS, strict=False)]
    if 0 in values:
        handles.append(handle("exactly 0", {"color": Ink.DIM, "marker": _zero(in_rows)}))
    if any(map(_is_lost, values)):
        handles.append(handle("not finite", CROSS))
    canvas.legend(handles, _BELOW)


@settings()
def heat_map(label: str, leaves: Sequence[Leaf]) -> str:
    """A row for each leaf and a column for each step: the lighter the larger the norm. Crossed:
    not finite. Framed: exactly 0. Nothing: no gradient."""
    import matplotlib

    steps = max((len(leaf.norms) for leaf in leaves), default=0)
    joined = max(1, math.ceil(steps / _MOST_COLUMNS))
    firsts = range(0, steps, joined)
    table = [[_worst(leaf.norms[at : at + joined]) for at in firsts] for leaf in leaves]
    low, high = _range([norm for leaf in leaves for norm in leaf.known])
    canvas = Canvas(_CELL * len(firsts), _CELL * len(leaves))
    axes = canvas.axes
    axes.set_xlim(0, len(firsts))
    axes.set_ylim(len(leaves), 0)
    rows = [row + 0.5 for row in range(len(leaves))]
    axes.set_yticks(rows, [_short(leaf.name) for leaf in leaves], color=Ink.TEXT)
    labelled = range(0, len(firsts), max(1, math.ceil(len(firsts) / _LABELS)))
    axes.set_xticks([at + 0.5 for at in labelled], [str(firsts[at]) for at in labelled])
    cells = axes.pcolormesh(
        [list(map(_log, norms)) for norms in table],
        cmap=matplotlib.colormaps["viridis"].resampled(_SHADES),
        vmin=low, vmax=high, edgecolors=Ink.PAGE, linewidth=1,
    )  # fmt: skip
    spots = [
        (norm, (column + 0.5, row, f"{clean(leaf.name)}, step {firsts[column]}: {_shown(norm)}"))
        for row, leaf, norms in zip(rows, leaves, table, strict=True)
        for column, norm in enumerate(norms)
    ]
    canvas.tip(cells, "cells", [spot[-1] for _, spot in spots])
    canvas.marks("zero", [spot for norm, spot in spots if norm == 0], FRAME)
    canvas.marks("lost", [spot for norm, spot in spots if _is_lost(norm)], CROSS)
    _key(canvas, cells, low, high)
    return canvas.svg(label, fit=False)


def _key(canvas: Canvas, cells: QuadMesh, low: float, high: float) -> None:
    """What the shades and the marks of the heat map mean."""
    width, height = canvas.size
    place = (0, -(_BELOW + 18) / height, _KEY / width, _BAR / height)
    key = canvas.figure.colorbar(cells, cax=canvas.figure.add_axes(place), orientation="horizontal")
    key.set_ticks([low, high], labels=[f"≤ {10**low:.0e}", f"≥ {10**high:.0e}"])
    key.outline.set_visible(False)
    for shade in key.ax.collections:
        shade.set_edgecolor("face")  # no seams
    handles = [handle("not finite", CROSS), handle("exactly 0", FRAME)]
    canvas.legend(handles, _BELOW + 6, (_KEY + 40) / width)


def _range(norms: Sequence[float]) -> tuple[float, float]:
    """The logarithms that the first and the last shade stand for."""
    logs = sorted(math.log10(norm) for norm in norms if has_logarithm(norm)) or [0.0]
    beyond = int(_OUTERMOST * len(logs))
    low, high = logs[beyond], logs[-1 - beyond]
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _worst(norms: Sequence[float | None]) -> float | None:
    known = [norm for norm in norms if norm is not None]
    return max(known, key=lambda norm: (not math.isfinite(norm), norm), default=None)


def _log(value: float | None) -> float:
    return math.log10(value) if has_logarithm(value) else math.nan


def _is_lost(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


def _shown(value: float | None) -> str:
    return "none" if value is None else text_of(value, 4)


def _short(name: str) -> str:
    name = clean(name)
    return name if len(name) <= _NAME else "…" + name[1 - _NAME :]
