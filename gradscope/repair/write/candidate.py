"""A repair that can be tried."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts import Edit


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to write a fix. `same` claims that the loss and all finite gradients stay
    bit-identical; otherwise verification says by how much they moved."""

    kind: str
    title: str
    edits: tuple[Edit, ...]
    same: bool = False

    @property
    def safety(self) -> str:
        return "safe" if self.same else "unsafe"
