"""How the gradient, or the result, grows along the graph.

The longest chain of crossings from the loss is the model's depth (or time); a computation that
repeats along it is a layer (or a step), and a straight line through the logarithms of its norms
gives the factor for each repeat.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile, pairwise, takewhile

from gradscope.dataclass import dataclass
from gradscope.facts import Depth, Growth, LayerSize
from gradscope.ops.display import node_stem
from gradscope.record.context import RunContext
from gradscope.record.journal import Note
from gradscope.record.names import Names
from gradscope.record.sites import resolve
from gradscope.record.sizes.crossings import Crossing
from gradscope.record.sizes.inspection import Inspected

_FEWEST = 4  # repeats below which a fitted factor says nothing
_SMALL = 1e-300
_SWOLLEN = 1e15  # a square of which is beyond float32, or near its end


@dataclass(frozen=True, slots=True)
class Fit:
    """A repeated computation: `anchors` are the positions where it repeats, and the first `alive`
    of the norms there are neither 0 nor infinite; `span` is the chain between them. The `growth` is
    told at its first repeat."""

    growth: Growth
    anchors: tuple[int, ...]
    alive: int
    span: tuple[int, ...]


def _fit(seen: Inspected, norms: Mapping[int, float], way: int) -> Fit | None:
    """The change of the norms, given by position, along a repeated computation: of gradients the
    loss first, or, where `way` is -1, of results, which grow towards the loss. None where nothing
    repeats."""
    crossings = seen.nodes
    chain = [position for position in longest_chain(crossings) if position in norms]
    # Sequences that are padded: what lies behind their ends gets a gradient of 0.
    anchors = list(dropwhile(lambda one: norms[one] == 0, _repeats(crossings, chain)[::way]))
    found = [norms[position] for position in anchors]
    alive = len(list(takewhile(_alive, found)))
    if alive < _FEWEST:
        return None
    logs = [math.log(norm) for norm in found[:alive]]
    steps = [after - before for before, after in pairwise(logs)]
    first, last = sorted(map(chain.index, (anchors[0], anchors[-1])))
    span = chain[first : last + 1]
    modules = _modules(crossings, span)
    places = {crossings[position].place for position in anchors}
    growth = Growth(
        step=seen.step,
        axis="time" if len(places) == 1 and len(modules) < 2 else "depth",
        call=crossings[anchors[0]].call,
        norms=tuple(found),
        factor=_exp(_slope(logs)),
        low=_exp(min(steps)),
        high=_exp(max(steps)),
    )
    return Fit(growth, tuple(anchors), alive, tuple(span))


def longest_chain(crossings: Sequence[Crossing], start: int | None = None) -> list[int]:
    """The positions along the longest way from a root, or from `start`, the loss first.

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
    chain = [max(range(len(length)), key=length.__getitem__) if start is None else start]
    while follow[chain[-1]] >= 0:
        chain.append(follow[chain[-1]])
    return chain


def _repeats(crossings: Sequence[Crossing], chain: list[int]) -> list[int]:
    """The occurrences of one computation: the same op on the same line, or, where every layer has
    a line of its own, the same op. Of those that repeat, one that does as often as most others:
    it happens once a layer or a step. Layers that one line runs, as it does those of a container,
    go on where another line runs such."""
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
            chosen = next(group for group in often if len(group) == usual)
            if not _are_layers(crossings, chosen):
                return chosen
            name = crossings[chosen[0]].name
            alike = [one for one in by_place.values() if crossings[one[0]].name == name]
            layers = {at for one in alike if _are_layers(crossings, one) for at in one}
            layers.update(chosen)
            return [position for position in chain if position in layers]
    return []


def _are_layers(crossings: Sequence[Crossing], group: Sequence[int]) -> bool:
    """Whether each of several occurrences is another module's."""
    modules = {crossings[position].module for position in group}
    return len(group) > 1 and len(modules) == len(group) and not {None, ""} & modules


def _modules(crossings: Sequence[Crossing], span: Sequence[int]) -> tuple[str, ...]:
    """The modules that share one line and one op: several where each repeat is another layer."""
    found: dict[object, set[str]] = defaultdict(set)
    for position in span:
        crossing = crossings[position]
        if crossing.place is not None and crossing.module:
            found[crossing.name, crossing.place].add(crossing.module)
    most: set[str] = max(found.values(), key=len, default=set())
    return tuple(sorted(most))


def _slope(values: Sequence[float]) -> float:
    """Least squares over positions 0, 1, 2, ..."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    spread = sum((position - middle) ** 2 for position in range(len(values)))
    rise = sum((position - middle) * (value - mean) for position, value in enumerate(values))
    return rise / spread


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _alive(norm: float) -> bool:
    return _SMALL < norm < math.inf


def _culprit(crossings: Sequence[Crossing], fit: Fit, norms: Mapping[int, float], way: int) -> int:
    """The crossing of the op that accounts for most of the change of the norms, those of gradients
    or, where `way` is -1, of results: the op first, then the line where it does most, then the one
    time that it did most."""
    gains: dict[str, dict[object, list[tuple[float, int]]]] = {}
    first, last = sorted(map(fit.span.index, (fit.anchors[0], fit.anchors[fit.alive - 1])))
    sign = way if fit.growth.factor > 1 else -way
    for position, below in pairwise(fit.span[first : last + 1]):
        crossing, here, there = crossings[position], norms[position], norms[below]
        if crossing.place is None or not (_alive(here) and _alive(there)):
            continue
        gain = math.log(there / here) * sign
        gains.setdefault(crossing.name, {}).setdefault(crossing.place, []).append((gain, position))
    if not gains:
        return fit.anchors[0]
    lines = max(gains.values(), key=lambda lines: sum(map(_total, lines.values())))
    line = max(lines.values(), key=_total)
    return max(line)[1]


def _total(gains: Sequence[tuple[float, int]]) -> float:
    return sum(gain for gain, _ in gains)


class Growths:
    """One a step at most: the change of norm along the computation that repeats. `swelling` is the
    first growth of results until they are not finite: there may be no gradient to measure."""

    def __init__(self) -> None:
        self._seen: list[Growth] = []
        self.swelling: Growth | None = None

    def note(self, seen: Inspected) -> None:
        crossings, activations = seen.nodes, seen.activations
        sizes = {
            position: activations[one.seq].norm
            for position, one in enumerate(crossings)
            if one.seq in activations
        }
        if self.swelling is None:
            self.swelling = _swelling(seen, sizes)
        gradients = {at: one.out for at, one in enumerate(crossings) if one.out is not None}
        found = _fit(seen, gradients, 1)
        if found is None:
            self._note_fused(seen)
            return
        norms = [sizes[position] for position in found.anchors if position in sizes]
        are_known = len(norms) == len(found.anchors)
        logs = [math.log(norm) for norm in takewhile(_alive, norms)] if are_known else []
        self._seen.append(
            replace(
                found.growth,
                call=crossings[_culprit(crossings, found, gradients, 1)].call,
                activations=tuple(norms) if are_known else (),
                activation_factor=_exp(_slope(logs)) if len(logs) >= _FEWEST else None,
                nodes=tuple(sorted({crossings[position].name for position in found.span})),
            )
        )

    def _note_fused(self, seen: Inspected) -> None:
        """A recurrent layer that runs all its time steps as one op: in the names of their nodes
        (`MkldnnRnnLayer`, `CudnnRnn`) is all that torch tells of it."""
        layers = [one for one in seen.nodes if one.out and "Rnn" in node_stem(one.name)]
        if layers:
            layer = max(layers, key=lambda one: one.gain)
            gain, norms = layer.gain, (layer.out or 0.0, layer.gain * (layer.out or 0.0))
            call = layer.call
            self._seen.append(Growth(seen.step, "fused", call, norms, gain, gain, gain))

    def strongest(self) -> tuple[Growth, ...]:
        """The first, the last and the most extreme ones, in the order of the steps."""
        if len(self._seen) <= 4:
            return tuple(self._seen)
        by_total = sorted(self._seen, key=lambda growth: growth.total)
        kept = (self._seen[0], self._seen[-1], by_total[0], by_total[-1])
        unique = {id(growth): growth for growth in kept}
        return tuple(sorted(unique.values(), key=lambda growth: growth.step))


def _swelling(seen: Inspected, sizes: Mapping[int, float]) -> Growth | None:
    """How results grew along a repeated computation, going forward, until they were not finite or
    too large to be squared; None where they stayed below."""
    found = _fit(seen, sizes, -1)
    norms = found.growth.norms if found is not None else ()
    if found is None or (found.alive == len(norms) and norms[-1] < _SWOLLEN):
        return None
    call = seen.nodes[_culprit(seen.nodes, found, sizes, -1)].call
    return replace(found.growth, call=call, norms=norms[: found.alive])


def depth_of(seen: Inspected, context: RunContext) -> Depth:
    """Each layer with its last result, in the order in which the forward pass first came to it."""
    gradients = {one.seq: one.out for one in seen.nodes if one.out is not None}
    found: dict[str, LayerSize] = {}
    for seq, size in sorted(seen.activations.items()):
        noted = context.journal.call_of(seq)
        layer = _layer(noted, context.names) if noted is not None else None
        if noted is not None and layer is not None:
            inside = noted.module is not None
            found[layer] = LayerSize(layer, noted.info.name, size, gradients.get(seq), inside)
    return Depth(seen.step, tuple(found.values()))


def _layer(noted: Note, names: Names) -> str | None:
    """The module that ran the op; the line, for an op outside of all modules."""
    if noted.module is not None or not noted.user:
        return names.module(noted.module)
    place = resolve(*noted.user[0])
    return str(place)
