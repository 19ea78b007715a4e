"""Bars and sparklines of characters, in ASCII where the encoding has no others."""

import math
from collections.abc import Sequence

WIDTH = 10  # cells of a full bar
SPARKS = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS = "_.-=+*%#"
# What a scale spans at least, in decades: a little noise should not look like growth.
_BAR_DECADES = 2.0
_SPARK_DECADES = 0.3


def bar(length: float, plain: bool = False) -> str:
    """A bar of eighths of a cell, from 0 to 1; something is always seen of what is not 0, and what
    is not finite is `!`."""
    if not math.isfinite(length):
        return "!" * WIDTH
    if length <= 0:
        return ""
    if plain:
        return "#" * max(1, round(min(length, 1.0) * WIDTH))
    eighths = max(1, round(min(length, 1.0) * WIDTH * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def lengths(values: Sequence[float | None]) -> tuple[float, ...]:
    """Those of bars on a common logarithmic scale: the largest is full, a factor of ten is a step
    of the same length everywhere. None and 0 have none; what is not finite stays as it is."""
    logs = [math.log10(v) for v in values if v is not None and 0 < v < math.inf]
    high = max(logs, default=0.0)
    span = max(high - min(logs, default=0.0), _BAR_DECADES)

    def length(value: float | None) -> float:
        if not value or not math.isfinite(value):
            return value or 0.0
        # The smallest keeps a cell: it is not 0.
        return 1 - (high - math.log10(value)) / span * (1 - 1 / WIDTH)

    return tuple(map(length, values))


def sparkline(values: Sequence[float], width: int, plain: bool = False) -> str:
    """One character a value or a group of values (its largest), on a logarithmic scale. What is
    not finite is `!`, zero a space."""
    marks = _ASCII_SPARKS if plain else SPARKS
    size = max(1, math.ceil(len(values) / width))
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    tops = [max(group, key=lambda one: (not math.isfinite(one), one)) for group in groups]
    logs = [math.log10(top) for top in tops if math.isfinite(top) and top > 0]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    missing = max(_SPARK_DECADES - (high - low), 0.0)
    return "".join(_mark(top, low - missing / 2, high + missing / 2, marks) for top in tops)


def _mark(value: float, low: float, high: float, marks: str) -> str:
    if not math.isfinite(value):
        return "!"
    if value <= 0:
        return " "
    place = (math.log10(value) - low) / (high - low)
    return marks[min(int(place * len(marks)), len(marks) - 1)]
