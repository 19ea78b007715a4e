"""Values that a repeated computation multiplies on the way forward until they leave their range:
how a recurrence, or a deep model, explodes before there is a gradient."""

from __future__ import annotations

import math

from gradscope.facts import (
    Call,
    Growth,
    Kind,
    Magnitudes,
    Phase,
    Root,
)

SHARE_OF_NORM = 1e-4  # an element of what the repeats have made, of a norm over many
LARGEST_SHARE = 0.5  # of the growth that one repeat may make: more is an op, and no growth


def swelling(magnitudes: Magnitudes, roots: tuple[Root, ...]) -> Root | None:
    """The first value that left its range, where the same lines had grown it to there."""
    growth = magnitudes.swelling
    if growth is None or growth.total < magnitudes.limits.gradient_growth:
        return None
    if math.log(growth.high) > LARGEST_SHARE * math.log(growth.total):
        return None
    return roots[0] if roots and _ends(growth, roots[0]) else None


def _ends(growth: Growth, root: Root) -> bool:
    """Whether the value was born where the growth had got to."""
    event = root.event
    if (
        event.kind is not Kind.BIRTH
        or event.phase is not Phase.FORWARD
        or event.step != growth.step
    ):
        return False
    if _lines(event.blame) & _lines(growth.call):
        return True
    bounds = [bound for one in event.operands for bound in (one.min, one.max) if bound is not None]
    return max(map(abs, bounds), default=0.0) >= SHARE_OF_NORM * growth.norms[-1]


def _lines(call: Call) -> set[tuple[str, int]]:
    """The lines that a call stands in, and those that led there from within one function."""
    places = call.frames or ((call.location,) if call.location is not None else ())
    return {(place.file, place.line) for place in places[:2]}
