"""Which ops of one backward pass made some elements of the gradient far larger than others."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from gradscope.facts import Leap, Steep
from gradscope.record.finite import norm_of, plain, rms_of
from gradscope.record.graph import reached
from gradscope.record.sizes.crossings import Crossing
from gradscope.record.sizes.inspection import Inspected
from gradscope.record.sizes.leaves import Leaves
from gradscope.record.sizes.steep import SteepInput

_MOST = 8  # kept of a run
_MORE = 10.0  # times the least that is kept has to come to a leaf, to be kept in its place
_UNDOES = 10.0  # times what a slope has made large: so near, its inverse made it small before
_CANCELS = 100.0  # times what is left of a gradient: no sum of unrelated ones is so small


class Leaps:
    """The largest of each step, one a place; of each place the first, and those of which most comes
    to a leaf."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self.found: list[Leap] = []
        self._earlier: dict[object, float] = {}  # slopes at the steps before, by place
        self._sides: dict[object, set[float]] = defaultdict(set)  # of divisors, likewise

    def note(self, seen: Inspected) -> None:
        slopes: dict[object, float] = {}
        for position, crossing in enumerate(seen.nodes):
            place: object = crossing.name, crossing.place
            if crossing.out:
                slopes[place] = max(slopes.get(place, 0.0), crossing.gain)
            if crossing.side is not None:
                self._sides[place].add(crossing.side)
            if crossing.steep is not None and crossing.place is not None:
                found = self._leap(position, seen)
                if found is not None:
                    self._keep(found)
        for place, slope in slopes.items():
            self._earlier[place] = max(slope, self._earlier.get(place, 0.0))

    def _keep(self, leap: Leap) -> None:
        known = [one for one in self.found if one.call.location == leap.call.location]
        same = next((one for one in known if one.step == leap.step), None)
        if same is not None and same.steep.slope < leap.steep.slope:
            self.found[self.found.index(same)] = leap
        elif same is None and len(self.found) < _MOST:
            self.found.append(leap)
        elif same is None:
            least = min(known[1:], key=lambda one: one.carried, default=leap)
            if leap.carried > _MORE * least.carried:
                self.found[self.found.index(least)] = leap

    def _leap(self, position: int, seen: Inspected) -> Leap | None:
        leaves, crossing = seen.crossings.variables, seen.nodes[position]
        at = crossing.steep
        assert at is not None
        reached = {
            leaf: norm
            for leaf, norm in _reached(position, at.edge, seen.nodes).items()
            if _holds(leaves[leaf], norm)
        }
        if not reached or not at.out:
            return None
        leaf = max(reached, key=reached.__getitem__)
        gave = seen.activations.get(crossing.seq)
        read = _operand_size(position, at.edge, seen)
        weight = rms_of(leaves[leaf])
        y = gave.rms if gave is not None else 0.0
        undone = _made_small(position, at.steep.slope, seen.nodes)
        carried = reached[leaf] / max(at.out, at.rest, undone)
        made_by = next((one for one in seen.nodes if one.seq == at.factor), crossing)
        return Leap(
            step=seen.step,
            call=made_by.call,
            steep=self._named(at, seen, crossing),
            earlier=self._earlier.get((crossing.name, crossing.place)),
            stretch=at.steep.slope * read / y if y and read else None,
            explained=max(at.largest, y, read or 0.0),
            leaf=self._leaves.meet(leaves[leaf], seen.frame).name,
            norm=reached[leaf],
            carried=carried,
            leaf_stretch=carried * weight / y if y and weight else None,
            by_factor=at.factor is not None,
            crossed=len(self._sides[crossing.name, crossing.place]) > 1,
        )

    def _named(self, at: SteepInput, seen: Inspected, crossing: Crossing) -> Steep:
        """With the name of the leaf that is next to the singular point itself."""
        steep, leaf = at.steep, crossing.leaves.get(at.edge)
        if steep.operand is None or leaf is None or not steep.own or at.factor is not None:
            return steep
        fact = self._leaves.meet(seen.crossings.variables[leaf], seen.frame).fact
        named = replace(steep.operand, name=fact.name, held_as=fact.held_as, requires_grad=True)
        return replace(steep, operand=named)


def _norm(crossing: Crossing, edge: int) -> float:
    """Of what a node handed to one of its inputs; 0 where it handed nothing."""
    return (crossing.into[edge] if edge < len(crossing.into) else None) or 0.0


def _made_small(position: int, slope: float, crossings: Sequence[Crossing]) -> float:
    """The largest gradient on the way to a node that another one made as small as this slope then
    makes it large, as the sine of an angle does before a division by the angle."""
    largest, leading = 0.0, {position}
    for at in range(position - 1, -1, -1):
        crossing = crossings[at]
        for edge, below in crossing.below.items():
            if below not in leading:
                continue
            leading.add(at)
            handed = _norm(crossing, edge)
            came = crossing.out or 0.0
            if math.isfinite(came) and 0.0 < handed * slope <= _UNDOES * came:
                largest = max(largest, came)
    return largest


def _reached(position: int, edge: int, crossings: Sequence[Crossing]) -> dict[int, float]:
    """The leaves below an input of a node, with the norm of the largest gradient that each was
    handed from there."""
    first = crossings[position]
    found: dict[int, float] = {}
    if edge in first.leaves:
        found[first.leaves[edge]] = _norm(first, edge)
    starts = [below for at, below in _handed_on(first, crossings) if at == edge]
    for one in reached(starts, lambda at: dict(_handed_on(crossings[at], crossings)).values()):
        for at, leaf in crossings[one].leaves.items():
            norm = _norm(crossings[one], at)
            if math.isfinite(norm):
                found[leaf] = max(norm, found.get(leaf, 0.0))
    return found


def _handed_on(crossing: Crossing, crossings: Sequence[Crossing]) -> Iterator[tuple[int, int]]:
    """The inputs of a node, and the crossings below that take what it handed on. Where one takes
    far less, that has cancelled with what others handed to it (x[i] - x[j], at i = j)."""
    for at, below in crossing.below.items():
        handed = _norm(crossing, at)
        taken = crossings[below].out
        if taken is None or _CANCELS * taken >= handed:
            yield at, below


def _holds(leaf: torch.Tensor, handed: float) -> bool:
    """Whether what was handed to a leaf is still in its gradient, and has not cancelled there."""
    grad = plain(leaf.grad) if leaf.grad is not None else None
    return grad is None or _CANCELS * norm_of(grad) >= handed


def _operand_size(position: int, edge: int, seen: Inspected) -> float | None:
    """The root mean square of an operand; of what a view of it shows, where nobody measured it."""
    crossing = seen.nodes[position]
    while True:
        if edge in crossing.leaves:
            return rms_of(seen.crossings.variables[crossing.leaves[edge]])
        if edge not in crossing.below:
            return None
        crossing = seen.nodes[crossing.below[edge]]
        if crossing.seq in seen.activations:
            return seen.activations[crossing.seq].rms
        edge = 0
