"""The pictures of the page, as SVG that takes its colours from the page.

Everything is told by place, shape or lightness as well, so that it reads in black and white: each
series has a mark of its own, the shades get lighter steadily, and what is not finite is crossed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeGuard

from gradscope.facts import Leaf, text_of

_WIDTH, _LEFT, _RIGHT, _TOP = 860, 64, 16, 22
_HEIGHT = 230  # of a line chart, without what stands above and below it
_ROW = 22  # of a dot plot
_CELL = 16
_NAME = 48  # characters of a name that are shown
_CHARACTER = 6.6  # its width
_MOST_COLUMNS = 60  # of the heat map: more steps are joined, the largest norm counts
_OUTERMOST = 0.05  # of the norms on either side share the last shade: one spike is no scale
_TICKS = 8

# Viridis at five places: its lightness grows steadily from the first to the last.
_SHADES = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))

STYLE = """\
body > h2 { margin-top: 2.25rem; } th { white-space: nowrap; }
.scroll svg { display: block; }
svg.fit { width: 100%; min-width: 40rem; height: auto; max-width: 60rem; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .grid { stroke: var(--line); } svg .tick { fill: var(--dim); }
svg line.bound { stroke: var(--text); stroke-dasharray: 6 4; }
svg text.bound { paint-order: stroke; stroke: var(--page); stroke-width: 4px; }
svg .line { fill: none; stroke-width: 1.75; }
svg .first { stroke: var(--mark); fill: var(--mark); }
svg .second { stroke: var(--warning); fill: var(--page); stroke-width: 1.75; }
svg .line.second { stroke-dasharray: 3 3; } svg .line.first, svg .line.second { fill: none; }
svg .cross { stroke: var(--error); stroke-width: 2.5; }
svg .box { fill: var(--page); stroke: var(--error); stroke-width: 1.5; }
svg .zero { fill: none; stroke: var(--dim); }
"""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a value for each place (None: nothing there)."""

    label: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis between two powers of ten, onto `start` to `end` in pixels."""

    low: int
    high: int
    start: float
    end: float

    def at(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def powers(self) -> range:
        return range(self.low, self.high + 1, max(1, math.ceil((self.high - self.low) / _TICKS)))


def _scale(values: Sequence[float | None], start: float, end: float) -> _Scale:
    logs = [math.log10(value) for value in values if _is_drawn(value)]
    low = math.floor(min(logs, default=0.0))
    high = max(math.ceil(max(logs, default=1.0)), low + 1)
    return _Scale(low, high, start, end)


def _is_drawn(value: float | None) -> TypeGuard[float]:
    return value is not None and 0 < value < math.inf


def lines(
    series: Sequence[Series], places: Sequence[str], axis: str, bound: float | None = None
) -> str:
    """Lines over `places`, which are called `axis`. `bound` is a max_norm."""
    values = [value for one in series for value in one.values]
    bottom = _TOP + _HEIGHT
    scale = _scale([*values, bound], bottom, _TOP)
    across = (_WIDTH - _LEFT - _RIGHT) / max(len(places) - 1, 1)
    parts = [f'<svg class="fit" viewBox="0 0 {_WIDTH} {bottom + 44}" role="img">']
    for power in scale.powers():
        y = scale.at(10.0**power)
        parts.append(_line("grid", _LEFT, y, _WIDTH - _RIGHT, y))
        parts.append(_text(_LEFT - 8, y + 4, f"1e{power}", "end", "tick"))
    every = max(1, math.ceil(len(places) / 12))
    parts += [
        _text(_LEFT + at * across, bottom + 18, places[at], "middle", "tick")
        for at in range(0, len(places), every)
    ]
    parts.append(_text(_WIDTH - _RIGHT, bottom + 38, axis, "end", "tick"))
    for kind, one in zip(("first", "second"), series, strict=False):
        points = [(_LEFT + at * across, value) for at, value in enumerate(one.values)]
        parts += _path(kind, points, scale)
        for at, (x, value) in enumerate(points):
            if value is None or (len(points) > 120 and math.isfinite(value)):
                continue
            tip = f"{axis} {places[at]}: {text_of(value, 4)}"
            y = scale.at(value) if _is_drawn(value) else _TOP if value else bottom
            parts.append(_mark(kind, x, y, tip) if math.isfinite(value) else _cross(x, y, tip))
    if bound is not None:
        y = scale.at(bound)
        parts.append(_line("bound", _LEFT, y, _WIDTH - _RIGHT, y))
        parts.append(_text(_WIDTH - _RIGHT, y - 5, f"max_norm {text_of(bound, 4)}", "end", "bound"))
    parts += _legend(series, bottom + 34)
    return "".join(parts) + "</svg>"


def dots(series: Sequence[Series], names: Sequence[str]) -> str:
    """A row for each name, with the mark of each series on one logarithmic axis."""
    left = 12 + _CHARACTER * max((len(_short(name)) for name in names), default=0)
    values = [value for one in series for value in one.values]
    bottom = _TOP + _ROW * len(names)
    width = max(_WIDTH, round(left) + 420)
    scale = _scale(values, left + 10, width - _RIGHT - 10)
    parts = [f'<svg class="fit" viewBox="0 0 {width} {bottom + 44}" role="img">']
    for power in scale.powers():
        x = scale.at(10.0**power)
        parts.append(_line("grid", x, _TOP - 6, x, bottom))
        parts.append(_text(x, bottom + 16, f"1e{power}", "middle", "tick"))
    for at, name in enumerate(names):
        y = _TOP + _ROW * at + _ROW / 2
        parts.append(_text(left, y + 4, _short(name), "end"))
    for kind, one in zip(("first", "second"), series, strict=False):
        for at, value in enumerate(one.values):
            y = _TOP + _ROW * at + _ROW / 2
            tip = f"{one.label} of {names[at]}: {'none' if value is None else text_of(value, 4)}"
            if _is_drawn(value):
                parts.append(_mark(kind, scale.at(value), y, tip))
            elif value is not None and not math.isfinite(value):
                parts.append(_cross(width - _RIGHT - 4, y, tip))
    parts += _legend(series, bottom + 36)
    return "".join(parts) + "</svg>"


def heat_map(leaves: Sequence[Leaf]) -> str:
    """A row for each leaf and a column for each step: the lighter the larger the norm. Crossed:
    not finite. Framed: exactly 0. Nothing: no gradient."""
    steps = max((len(leaf.norms) for leaf in leaves), default=0)
    joined = max(1, math.ceil(steps / _MOST_COLUMNS))
    columns = math.ceil(steps / joined)
    low, high = _range([norm for leaf in leaves for norm in leaf.known])
    left = round(12 + _CHARACTER * max((len(_short(leaf.name)) for leaf in leaves), default=0))
    bottom = _CELL * len(leaves)
    width, height = left + max(_CELL * columns, 300) + 8, bottom + 64
    parts = [f'<svg width="{width}" height="{height}" role="img">']
    for row, leaf in enumerate(leaves):
        parts.append(_text(left - 6, row * _CELL + 12, _short(leaf.name), "end"))
        for column in range(columns):
            first = column * joined
            norms = [norm for norm in leaf.norms[first : first + joined] if norm is not None]
            if norms:
                worst = max(norms, key=lambda norm: (not math.isfinite(norm), norm))
                tip = f"{leaf.name}, step {first}: {text_of(worst, 4)}"
                parts.append(_cell(left + column * _CELL, row * _CELL, worst, low, high, tip))
    every = max(1, math.ceil(columns / 12))
    for column in range(0, columns, every):
        x = left + column * _CELL + _CELL / 2
        parts.append(_text(x, bottom + 14, str(column * joined), "middle", "tick"))
    parts += _key(left, bottom + 28, low, high)
    return "".join(parts) + "</svg>"


def _range(norms: Sequence[float]) -> tuple[float, float]:
    """The logarithms that the first and the last shade stand for."""
    logs = sorted(math.log10(norm) for norm in norms if _is_drawn(norm)) or [0.0]
    beyond = int(_OUTERMOST * len(logs))
    return logs[beyond], logs[-1 - beyond]


def _cell(x: float, y: float, norm: float, low: float, high: float, tip: str) -> str:
    box = f'x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}"'
    title = f"<title>{escape(tip)}</title>"
    if not math.isfinite(norm):
        inner = f'x="{x + 1}" y="{y + 1}" width="{_CELL - 3}" height="{_CELL - 3}"'
        cross = _crossing(x + _CELL / 2 - 0.5, y + _CELL / 2 - 0.5, 4)
        return f'<g>{title}<rect class="box" {inner}/>{cross}</g>'
    if norm == 0:
        inner = f'x="{x + 1}" y="{y + 1}" width="{_CELL - 3}" height="{_CELL - 3}"'
        return f'<rect class="zero" {inner}>{title}</rect>'
    part = (math.log10(norm) - low) / (high - low) if high > low else 0.5
    return f'<rect {box} fill="{_shade(part)}">{title}</rect>'


def _shade(part: float) -> str:
    place = min(max(part, 0.0), 1.0) * (len(_SHADES) - 1)
    below = min(int(place), len(_SHADES) - 2)
    mixed = (
        round(a + (b - a) * (place - below))
        for a, b in zip(_SHADES[below], _SHADES[below + 1], strict=True)
    )
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _key(x: int, y: int, low: float, high: float) -> Iterator[str]:
    """What the shades and the marks of the heat map mean."""
    for at in range(10):
        yield f'<rect x="{x + 12 * at}" y="{y}" width="12" height="12" fill="{_shade(at / 9)}"/>'
    yield _text(x, y + 26, f"≤ {10**low:.0e}")
    yield _text(x + 120, y + 26, f"≥ {10**high:.0e}", "end")
    yield _cell(x + 144, y - 1, math.nan, 0, 1, "not finite")
    yield _text(x + 164, y + 11, "not finite")
    yield _cell(x + 232, y - 1, 0.0, 0, 1, "exactly 0")
    yield _text(x + 252, y + 11, "exactly 0")


def _path(kind: str, points: Sequence[tuple[float, float | None]], scale: _Scale) -> Iterator[str]:
    """The line through the points, broken where one cannot be drawn."""
    pieces: list[list[str]] = [[]]
    for x, value in points:
        if _is_drawn(value):
            pieces[-1].append(f"{x:.1f},{scale.at(value):.1f}")
        elif pieces[-1]:
            pieces.append([])
    for piece in pieces:
        if len(piece) > 1:
            yield f'<polyline class="line {kind}" points="{" ".join(piece)}"/>'


def _legend(series: Sequence[Series], y: float) -> Iterator[str]:
    x = float(_LEFT)
    for kind, one in zip(("first", "second"), series, strict=False):
        yield _mark(kind, x, y, one.label)
        yield _text(x + 10, y + 4, one.label)
        x += 34 + _CHARACTER * len(one.label)


def _mark(kind: str, x: float, y: float, tip: str) -> str:
    """A filled circle, or an open square."""
    title = f"<title>{escape(tip)}</title>"
    if kind == "first":
        return f'<circle class="first" cx="{x:.1f}" cy="{y:.1f}" r="3.5">{title}</circle>'
    return (
        f'<rect class="second" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7">'
        f"{title}</rect>"
    )


def _cross(x: float, y: float, tip: str) -> str:
    return f"<g><title>{escape(tip)}</title>{_crossing(x, y, 5)}</g>"


def _crossing(x: float, y: float, arm: float) -> str:
    a, b, c, d = x - arm, x + arm, y - arm, y + arm
    return _line("cross", a, c, b, d) + _line("cross", a, d, b, c)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(name: str) -> str:
    return name if len(name) <= _NAME else "…" + name[1 - _NAME :]
