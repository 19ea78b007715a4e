"""How the gradient's norm changes along the graph: pure arithmetic over what was measured.

A crossing is one autograd node that the gradient went through. The longest chain of crossings
from the loss is the model's depth (or time); a computation that repeats along it is a layer (or a
step), and a straight line through the logarithms of its norms gives the factor for each repeat.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_FEWEST = 4  # repeats below which a fitted factor says nothing
_SMALL = 1e-300
_SWOLLEN = 1e15  # a square of which is beyond float32, or near its end


@dataclass(slots=True)
class Crossing:
    """One node of the graph in one backward pass. `out` is the norm of the gradient that came
    in, `into` those that it passed on, one an input (None: no gradient flows there). `below` are
    the positions of the crossings that take them, `leaves` the leaves, as index of the input ->
    position. `place` is what makes two crossings the same computation."""

    name: str
    seq: int
    place: object = None
    module: str | None = None
    takes_nearest: bool = False  # an interpolation, which has slope 0 in the places then
    out: float | None = None
    into: tuple[float | None, ...] = ()
    half: tuple[bool, ...] = ()  # whether the gradient passed on is of a half type
    full: bool = False  # no element of the gradient that came in is 0; asked of selections alone
    below: dict[int, int] = field(default_factory=dict)
    leaves: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fit:
    """A repeated computation: `anchors` are the positions where it repeats, nearest to the loss
    first, `culprit` is that of the crossing that changed the norm most. `modules` are those in
    which it repeats."""

    modules: tuple[str, ...]
    axis: str
    norms: tuple[float, ...]
    factor: float
    low: float
    high: float
    culprit: int
    anchors: tuple[int, ...]
    nodes: tuple[str, ...] = ()


def longest_chain(crossings: Sequence[Crossing]) -> list[int]:
    """The positions along the longest way from a root, the loss first.

    `crossings` are in topological order: each before those below it.
    """
    length = [0] * len(crossings)
    follow = [-1] * len(crossings)
    for position in range(len(crossings) - 1, -1, -1):
        for below in crossings[position].below.values():
            if crossings[below].out is not None and length[below] + 1 > length[position]:
                length[position] = length[below] + 1
                follow[position] = below
    if not length:
        return []
    current = max(range(len(length)), key=length.__getitem__)
    chain = [current]
    while follow[current] >= 0:
        current = follow[current]
        chain.append(current)
    return chain


def fit(crossings: Sequence[Crossing]) -> Fit | None:
    """The strongest change of norm along a repeated computation; None where nothing repeats."""
    chain = [
        position for position in longest_chain(crossings) if crossings[position].out is not None
    ]
    anchors = _repeats(crossings, chain)
    if len(anchors) < _FEWEST:
        return None
    norms = [crossings[position].out or 0.0 for position in anchors]
    alive = _leading_nonzero(norms)
    if alive < _FEWEST:
        return None
    logs = [math.log(norm) for norm in norms[:alive]]
    steps = [after - before for before, after in pairwise(logs)]
    slope = _slope(logs)
    span = chain[chain.index(anchors[0]) : chain.index(anchors[-1]) + 1]
    modules = _modules(crossings, span)
    places = {crossings[position].place for position in anchors}
    return Fit(
        modules=modules,
        axis="time" if len(places) == 1 and len(modules) < 2 else "depth",
        norms=tuple(norms),
        factor=_exp(slope),
        low=_exp(min(steps)),
        high=_exp(max(steps)),
        culprit=_culprit(crossings, chain, anchors[0], anchors[alive - 1], rising=slope > 0),
        anchors=tuple(anchors),
        nodes=tuple(sorted({crossings[position].name for position in span})),
    )


def fit_values(crossings: Sequence[Crossing], sizes: Mapping[int, float]) -> Fit | None:
    """How results grew along a repeated computation, going forward, until they were not finite or
    too large to be squared; None where they stayed below. `sizes` are their norms by sequence
    number."""
    chain = [place for place in longest_chain(crossings) if crossings[place].seq in sizes]
    anchors = _repeats(crossings, chain)[::-1]
    norms = [sizes[crossings[place].seq] for place in anchors]
    alive = _leading_nonzero(norms)
    if alive < _FEWEST or (alive == len(norms) and norms[-1] < _SWOLLEN):
        return None
    steps = [math.log(after / before) for before, after in pairwise(norms[:alive])]
    places = {crossings[place].place for place in anchors}
    modules = _modules(crossings, anchors)
    return Fit(
        modules=modules,
        axis="time" if len(places) == 1 and len(modules) < 2 else "depth",
        norms=tuple(norms[:alive]),
        factor=_exp(_slope([math.log(norm) for norm in norms[:alive]])),
        low=_exp(min(steps)),
        high=_exp(max(steps)),
        culprit=anchors[min(alive, len(anchors) - 1)],
        anchors=tuple(anchors[:alive]),
    )


def fitted_factor(norms: Sequence[float]) -> float | None:
    """The change from one to the next; None where too few of them say something."""
    alive = norms[: _leading_nonzero(norms)]
    if len(alive) < _FEWEST:
        return None
    return _exp(_slope([math.log(norm) for norm in alive]))


def _repeats(crossings: Sequence[Crossing], chain: list[int]) -> list[int]:
    """The occurrences of one computation: the same op on the same line, or, where every layer has
    a line of its own, the same op. Of those that repeat, one that does as often as most others:
    it happens once a layer or a step."""
    by_place: dict[object, list[int]] = defaultdict(list)
    by_name: dict[object, list[int]] = defaultdict(list)
    for position in chain:
        crossing = crossings[position]
        if crossing.place is not None:
            by_place[crossing.name, crossing.place].append(position)
        by_name[crossing.name].append(position)
    for groups in (by_place, by_name):
        often = [group for group in groups.values() if len(group) >= _FEWEST]
        counts = Counter(map(len, often))
        if often:
            usual = max(counts, key=lambda count: (counts[count], count))
            return next(group for group in often if len(group) == usual)
    return []


def _modules(crossings: Sequence[Crossing], span: Sequence[int]) -> tuple[str, ...]:
    """The modules that share one line and one op: several where each repeat is another layer."""
    found: dict[object, set[str]] = defaultdict(set)
    for position in span:
        crossing = crossings[position]
        if crossing.place is not None and crossing.module:
            found[crossing.name, crossing.place].add(crossing.module)
    most: set[str] = max(found.values(), key=len, default=set())
    return tuple(sorted(most))


def fused_gain(crossing: Crossing) -> float:
    """How much more came out of one node than went in: a whole recurrent layer is one op."""
    given = max((norm for norm in crossing.into if norm is not None), default=0.0)
    return given / crossing.out if crossing.out else 0.0


def _leading_nonzero(norms: Sequence[float]) -> int:
    for position, norm in enumerate(norms):
        if not _alive(norm):
            return position
    return len(norms)


def _slope(values: Sequence[float]) -> float:
    """Least squares over positions 0, 1, 2, ..."""
    middle = (len(values) - 1) / 2
    mean = sum(values) / len(values)
    spread = sum((position - middle) ** 2 for position in range(len(values)))
    return (
        sum((position - middle) * (value - mean) for position, value in enumerate(values)) / spread
    )


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _culprit(
    crossings: Sequence[Crossing], chain: list[int], first: int, last: int, *, rising: bool
) -> int:
    """The crossing of the op that accounts for most of the change between two positions: the op
    first, then the line where it does most, then the one time that it did most."""
    start, end = chain.index(first), chain.index(last)
    gains: dict[str, dict[object, list[tuple[float, int]]]] = {}
    for position, after in zip(chain[start:end], chain[start + 1 : end + 1], strict=True):
        crossing = crossings[position]
        before, behind = crossing.out or 0.0, crossings[after].out or 0.0
        if crossing.place is None or not (_alive(before) and _alive(behind)):
            continue
        gain = math.log(behind / before) * (1 if rising else -1)
        gains.setdefault(crossing.name, {}).setdefault(crossing.place, []).append((gain, position))
    if not gains:
        return first
    lines = max(gains.values(), key=lambda lines: sum(_total(line) for line in lines.values()))
    line = max(lines.values(), key=_total)
    return max(line)[1]


def _total(gains: Sequence[tuple[float, int]]) -> float:
    return sum(gain for gain, _ in gains)


def _alive(norm: float) -> bool:
    return _SMALL < norm < math.inf
