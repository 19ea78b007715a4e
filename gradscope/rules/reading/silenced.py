"""An inf that turned into 0 unseen, and took the gradients with it: `x * rsqrt(mean(x ** 2))` in
float16 is 0 wherever the square overflows."""

from __future__ import annotations

from dataclasses import replace

from gradscope.facts import Absence, Event, Kind, Phase, Root, Subject, Symptom, Trace, Trouble
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence


def silenced(trace: Trace) -> Root | None:
    """The overflow in half precision whose inf became a factor of exactly 0, as the root of the
    gradients that are 0 for it."""
    births = [event for event in trace.hidden if _becomes_zero(event)]
    gone = silenced_leaves(trace)
    if not births or not gone:
        return None
    symptoms = tuple(Symptom(Trouble.ZERO, Subject.GRADIENT, one.step, one.leaf) for one in gone)
    return Root(replace(births[0], hidden_by=None), symptoms, (births[0],))


def silenced_leaves(trace: Trace) -> tuple[Absence, ...]:
    """The trained parameters whose gradient ends at a factor of exactly 0."""
    if trace.magnitudes is None or not any(map(_becomes_zero, trace.hidden)):
        return ()
    return tuple(
        one
        for one in trace.magnitudes.absences
        if one.trained and not one.missing and one.reason == "zero-weight"
    )


def _becomes_zero(event: Event) -> bool:
    is_overflow = event.kind is Kind.BIRTH and event.phase is Phase.FORWARD
    hider = event.hidden_by
    return (
        is_overflow
        and evidence.is_half(event)
        and not evidence.gives_nan(event)
        and hider is not None
        and has(hider.op, Trait.DIVIDES)
    )
