"""What the source tells of an update: its rate, which way it goes, what its loss is divided by."""

from __future__ import annotations

from gradscope import source
from gradscope.errors import GradscopeError
from gradscope.facts import Location, Update
from gradscope.source import Source
from gradscope.source.hand_updates import ascent, rate_by_hand, undivided


def rate_of(update: Update) -> float | None:
    """The learning rate: the optimizer's, or the number that multiplies the gradient in an update
    by hand; None where that is not written."""
    if update.lr is not None:
        return update.lr
    text = _read(update.location)
    if text is None or update.location is None:
        return None
    found = rate_by_hand(text, update.location)
    return float(found.value) if found is not None else None  # type: ignore[arg-type]


def line_of_ascent(update: Update) -> int | None:
    """The line in which the update adds the gradient; None where it is not seen to."""
    text = _read(update.location)
    if text is None or update.location is None:
        return None
    found = ascent(text, update.location, update.optimizer)
    return found.lineno if found is not None else None


def is_undivided(backward: Location | None) -> bool:
    """Whether the loss of a backward is seen to be no quotient."""
    text = _read(backward)
    return text is not None and backward is not None and undivided(text, backward) is not None


def _read(place: Location | None) -> Source | None:
    if place is None:
        return None
    try:
        return source.read(place.file)
    except GradscopeError:
        return None
