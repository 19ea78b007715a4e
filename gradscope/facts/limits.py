"""What a stage left out, and for want of what: its time, its memory, a size that it stays below."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotChecked:
    """One thing that nobody looked at. Both parts are clauses in words: `what` names it ("the
    backward of `Scan`"), `why` says what stood in the way ("6.5 million elements; at most 1
    million are checked")."""

    what: str
    why: str
