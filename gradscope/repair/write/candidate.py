"""A repair that can be tried."""

from collections.abc import Iterable
from dataclasses import dataclass

from gradscope.facts import Edit


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to write a fix. `kind` is that of the fix, unless said otherwise. `same` claims that
    the loss and all finite gradients stay bit-identical; otherwise verification says by how much
    they moved."""

    title: str
    edits: tuple[Edit, ...]
    kind: str = ""
    same: bool = False


Edits = Iterable[Edit]
Ways = Iterable[Candidate | Edits]  # the best first; edits alone have the title of the fix
