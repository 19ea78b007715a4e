"""Values that a repeated computation multiplies on the way forward until they leave their range:
how a recurrence, or a deep model, explodes before there is a gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradscope.facts import (
    Call,
    Finding,
    Fix,
    Growth,
    KeepNorm,
    Kind,
    Magnitudes,
    Phase,
    Related,
    Root,
    Severity,
    Strength,
    plural,
    text_of,
)
from gradscope.rules.wording import phrases
from gradscope.rules.wording.proposals import proposed

SHARE_OF_NORM = 1e-4  # an element of what the repeats have made, of a norm over many
LARGEST_SHARE = 0.5  # of the growth that one repeat may make: more is an op, and no growth


def swelling(magnitudes: Magnitudes, roots: tuple[Root, ...]) -> Iterator[Finding]:
    """The first value that left its range where the same lines had grown it to there."""
    growth = magnitudes.swelling
    if growth is None or growth.total < magnitudes.limits.gradient_growth:
        return
    if math.log(growth.high) > LARGEST_SHARE * math.log(growth.total):
        return
    for root in roots[:1]:
        if _ends(growth, root):
            yield _about(growth, root)


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


def _about(growth: Growth, root: Root) -> Finding:
    repeats = plural(len(growth.norms), growth.unit)
    first, last = growth.norms[0], growth.norms[-1]
    dtype = root.event.output.dtype if root.event.output is not None else None
    way = "time step by time step" if growth.axis == "time" else "layer by layer"
    return Finding(
        rule="GS401",
        name="exploding-gradient",
        severity=Severity.ERROR,
        phase=Phase.FORWARD,
        step=growth.step,
        op=root.event.op,
        node=growth.call.node,
        location=growth.call.location or root.event.blame.location,
        message=f"the values grow x{text_of(growth.factor, 3)} per {growth.unit} over {repeats},"
        f" until `{phrases.spelled(root.event.op)}` overflows {dtype or 'its dtype'}",
        label=f"repeated {len(growth.norms)} times before the overflow",
        related=_overflow(growth, root),
        why=f"The same computation multiplies what it is given, {way}: a norm of"
        f" {text_of(first, 3)} becomes {text_of(last, 3)} before it leaves the range. The growth is"
        " steady, so it comes from the weights and not from one bad batch, and backward multiplies"
        " by the same weights. A wider dtype only lasts a few repeats longer.",
        evidence={
            "axis": growth.axis,
            "factor": growth.factor,
            "range": [growth.low, growth.high],
            "norms": list(growth.norms),
        },
        numbers=tuple(_profile(growth)),
        symptoms=root.symptoms,
        chain=root.chain,
        fixes=tuple(_fixes(growth)),
        strength=Strength.PROVEN,
    )


def _overflow(growth: Growth, root: Root) -> tuple[Related, ...]:
    place = root.event.blame.location
    if place is None or growth.call.location is None or place.line == growth.call.location.line:
        return ()
    return (Related("use", place, "leaves the range"),)


def _profile(growth: Growth) -> Iterator[str]:
    last = len(growth.norms) - 1
    places = sorted({round(last * part / 4) for part in range(5)})
    shown = ", ".join(f"{growth.norms[place]:.2e} ({place + 1})" for place in places)
    yield f"norm of the values by {growth.unit}, the first one first: {shown}"
    yield (
        f"fitted x{growth.factor:.4g} per {growth.unit}, from x{growth.low:.3g} to"
        f" x{growth.high:.3g}"
    )


def _fixes(growth: Growth) -> Iterator[Fix]:
    yield proposed(KeepNorm(growth.axis, growth.nodes))
    yield Fix(
        "stable-op",
        "normalise in between, or use a bounded activation or a gated cell",
        "display-only",
        "h = norm(h)",
    )
