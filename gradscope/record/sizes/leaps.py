"""Which ops of one backward pass made some elements of the gradient far larger than others."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from gradscope.facts import Activation, Leap
from gradscope.record.finite import plain
from gradscope.record.pieces import norm_of
from gradscope.record.sizes.crossings import Crossing, Crossings
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.leaves import Leaves
from gradscope.record.sizes.reasons import call_of

_MOST = 8  # kept of a run


class Leaps:
    """The largest of each step, one a place, in the order of the steps."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self.found: list[Leap] = []
        self._earlier: dict[object, float] = {}  # slopes at the steps before, by place

    def note(
        self,
        step: int,
        crossings: Crossings,
        flow: Flow,
        activations: Mapping[int, Activation],
        frame: Any,
    ) -> None:
        """`frame` asked for the backward."""
        slopes: dict[object, float] = {}
        for position, crossing in enumerate(crossings.found):
            place: object = crossing.name, crossing.place
            gain = max((one for one in crossing.into if one is not None), default=0.0)
            if crossing.out:
                slopes[place] = max(slopes.get(place, 0.0), gain / crossing.out)
            if crossing.steep is not None and crossing.place is not None:
                found = self._leap(step, position, crossings, flow, activations, frame)
                if found is not None:
                    self._keep(found)
        for place, slope in slopes.items():
            self._earlier[place] = max(slope, self._earlier.get(place, 0.0))

    def _keep(self, leap: Leap) -> None:
        known = [one for one in self.found if one.call.location == leap.call.location]
        same = next((one for one in known if one.step == leap.step), None)
        if same is not None and same.slope < leap.slope:
            self.found[self.found.index(same)] = leap
        elif same is None and len(self.found) < _MOST:
            self.found.append(leap)

    def _leap(
        self,
        step: int,
        position: int,
        crossings: Crossings,
        flow: Flow,
        activations: Mapping[int, Activation],
        frame: Any,
    ) -> Leap | None:
        found, leaves = crossings.found, crossings.variables
        crossing = found[position]
        steep = crossing.steep
        assert steep is not None
        reached = dict(_reached(position, steep.edge, found))
        if not reached or not steep.out:
            return None
        leaf = max(reached, key=reached.__getitem__)
        gave = activations.get(crossing.seq)
        read = _operand_size(position, steep.edge, found, leaves, activations)
        weight = _size(leaves[leaf])
        y = gave.rms if gave is not None else 0.0
        carried = reached[leaf] / max(steep.out, steep.rest)
        return Leap(
            step=step,
            call=call_of(next((one for one in found if one.seq == steep.factor), crossing), flow),
            by_factor=steep.factor is not None,
            slope=steep.slope,
            others=steep.others,
            earlier=self._earlier.get((crossing.name, crossing.place)),
            steep=steep.count,
            numel=steep.numel,
            index=steep.index,
            stretch=steep.slope * read / y if y and read else None,
            explained=max(steep.largest, y, read or 0.0),
            leaf=self._leaves.meet(leaves[leaf], frame).name,
            norm=reached[leaf],
            carried=carried,
            leaf_stretch=carried * weight / y if y and weight else None,
            operand=steep.operand,
            near=steep.near,
            far=steep.far,
            in_reach=steep.in_reach,
            own=steep.own,
        )


def _reached(
    position: int, edge: int, crossings: Sequence[Crossing]
) -> Iterator[tuple[int, float]]:
    """The leaves below an input of a node, with the norm of the largest gradient that each was
    handed from there."""
    first = crossings[position]
    found: dict[int, float] = {}
    if edge in first.leaves:
        found[first.leaves[edge]] = first.into[edge] or 0.0
    waiting = [first.below[edge]] if edge in first.below else []
    seen = set(waiting)
    while waiting:
        crossing = crossings[waiting.pop()]
        for at, leaf in crossing.leaves.items():
            norm = (crossing.into[at] if at < len(crossing.into) else None) or 0.0
            if math.isfinite(norm):
                found[leaf] = max(norm, found.get(leaf, 0.0))
        new = [below for below in crossing.below.values() if below not in seen]
        seen.update(new)
        waiting += new
    yield from found.items()


def _operand_size(
    position: int,
    edge: int,
    crossings: Sequence[Crossing],
    leaves: Sequence[torch.Tensor],
    activations: Mapping[int, Activation],
) -> float | None:
    """The root mean square of an operand; of what a view of it shows, where nobody measured it."""
    crossing: Crossing | None = crossings[position]
    while crossing is not None:
        if edge in crossing.leaves:
            return _size(leaves[crossing.leaves[edge]])
        if edge not in crossing.below:
            return None
        crossing = crossings[crossing.below[edge]]
        if crossing.seq in activations:
            return activations[crossing.seq].rms
        edge = 0
    return None


def _size(leaf: torch.Tensor) -> float:
    values = plain(leaf)
    if values is None or not values.numel():
        return 0.0
    return norm_of(values) / math.sqrt(values.numel())
