"""Values that were written after an op had saved them for its backward."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts.places import Call, Location


@dataclass(frozen=True, slots=True)
class Overwrite:
    """`call` saved a tensor, the op `writer` changed it at `location`, and the backward node `node`
    read it all the same: what changed it went around autograd's version counter (`.data`)."""

    step: int
    call: Call
    node: str
    writer: str
    location: Location
