"""What the user suffers from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Symptom:
    """What the user suffers from. `kind` is nan-loss, inf-loss, nan-grad, inf-grad, nan-param,
    inf-param, zero-grad, none-grad, wrong-grad, exploding-grad or diverging-loss. `bad` of `numel`
    elements are (both 0 where nobody counted); of a zero-grad that has only faded none is. `event`
    is the event that made the bad value, None where it was not observed."""

    kind: str
    step: int
    tensor: str
    bad: int = 0
    numel: int = 0
    first_index: tuple[int, ...] = ()
    event: int | None = None
