"""Numbers that the program read out of tensors."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts.events import Event
from gradscope.facts.places import Location


@dataclass(frozen=True, slots=True)
class NanRead:
    """NaN that the program made a number, an array or a text of (`item()`, `numpy()`, `print`), or
    compared (`score < best`), of a value on which no gradient depends: a metric, a validation loss.
    `event` is where the NaN was born, or came in; `times` of the last step's reads at the place,
    all of which gave NaN. `finite_before`: one of an earlier step did not."""

    event: Event
    step: int
    times: int
    location: Location
    finite_before: bool = False
