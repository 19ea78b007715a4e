"""Whether the gradients that an optimizer gets fade over the run, and at which op."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from gradscope.facts import Flat
from gradscope.ops.traits import Trait, has
from gradscope.record.sizes.crossings import Crossing
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.leaves import norms_of
from gradscope.record.sizes.reasons import call_of

_ALL = 16  # updates that are all measured; of later ones eight for each doubling of their number
_MOST = 128
_EARLY = 5  # updates that tell how large its gradients were
_FADED = 1e-2  # of these: worth a look at the graph
_NEAR = 8  # calls from the flat one towards the loss that are told
_AGAIN = 0.1  # times the norm at the look before
_CURVED = Trait.SATURATES | Trait.AVERAGES  # a slope of its own, which no weight gives it

Slopes = dict[object, tuple[float, Crossing]]


class Fading:
    """Of the gradients of one optimizer: `norms` are their L2 norms by the step of the pass."""

    def __init__(self) -> None:
        self.norms: list[tuple[int, float]] = []
        self.flat: Flat | None = None
        self.wants_look = False
        self._first: Slopes | None = None
        self._looked_at = math.inf

    def is_due(self, updates: int) -> bool:
        """Whether to note the gradients of the coming update, after so many."""
        every = 1 << max(0, updates.bit_length() - 4)
        return len(self.norms) < _MOST and (updates < _ALL or updates % every == 0)

    def note_update(self, step: int, grads: Sequence[Any]) -> None:
        """It is about to step along these."""
        norm = math.hypot(*norms_of(grads))
        self.norms.append((step, norm))
        if len(self.norms) > _EARLY:
            usual = median(norm for _, norm in self.norms[:_EARLY])
            self.wants_look |= norm <= min(_FADED * usual, _AGAIN * self._looked_at)

    def note_graph(self, step: int, crossings: Sequence[Crossing], flow: Flow) -> None:
        """A pass that gave it gradients was looked at."""
        slopes = _slopes(crossings)
        if self._first is None:
            self._first = slopes
        elif self.wants_look and slopes:
            self.wants_look, self._looked_at = False, self.norms[-1][1]
            ratios = {key: slope / self._before(key) for key, (slope, _) in slopes.items()}
            key = min(ratios, key=ratios.__getitem__)
            slope, crossing = slopes[key]
            if self.flat is None or slope < self.flat.slope:
                uses = tuple(call_of(one, flow) for one in _uses(crossing, crossings))
                self.flat = Flat(step, call_of(crossing, flow), slope, self._before(key), uses)

    def _before(self, key: object) -> float:
        """The slope there at first; 1 where nobody saw it."""
        known = self._first.get(key) if self._first is not None else None
        return known[0] if known is not None else 1.0


def _uses(crossing: Crossing, crossings: Sequence[Crossing]) -> Iterator[Crossing]:
    """From one up to the loss, on one of the ways there."""
    for _ in range(_NEAR):
        at = next(place for place, one in enumerate(crossings) if one is crossing)
        above = [one for one in crossings if at in one.below.values()]
        if not above:
            return
        crossing = above[0]
        yield crossing


def _slopes(crossings: Sequence[Crossing]) -> Slopes:
    """How much of the gradient each op with a curve passed on, the least for each place."""
    found: Slopes = {}
    for one in crossings:
        if one.out and one.place is not None and has(one.name, _CURVED):
            slope = math.hypot(*(norm or 0.0 for norm in one.into)) / one.out
            key = one.name, one.place, one.module
            if key not in found or slope < found[key][0]:
                found[key] = slope, one
    return found
