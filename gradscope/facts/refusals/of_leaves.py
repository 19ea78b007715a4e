"""What is no leaf, or was taken for none."""

from gradscope.dataclass import dataclass
from gradscope.facts.places import Location
from gradscope.facts.refusals.refusal import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafWritten(Refusal):
    """An in-place op on a leaf that requires grad. `trained`: it is a parameter, or has a gradient
    already; else it is an input."""

    name: str
    trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLeaf(Refusal):
    """The gradient of `name` was read, which is None: backward keeps it for leaves alone, and the
    name holds what an op has given. `updated`: that op is the update of it by hand, at `location`.
    `nameless`: what it was computed from that could learn has no name."""

    name: str
    location: Location | None = None
    updated: bool = False
    nameless: bool = False


OfLeaf = LeafWritten | NoLeaf
