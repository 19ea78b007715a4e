"""What is no leaf, or was taken for none."""

from gradscope.dataclass import dataclass
from gradscope.facts.places import Call, Location
from gradscope.facts.refusals.of_graphs import Refusal


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedGiven(Refusal):
    """An optimizer of the class `optimizer` was given `name`, which is no leaf: `made` gave it."""

    optimizer: str
    name: str
    made: Call | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingGiven(Refusal):
    """An optimizer of the class `optimizer` was given no parameters. `unregistered` are those that
    a model holds at `location`, where its `parameters()` does not look; `consumed`: an iterator
    that something else had read before."""

    optimizer: str
    unregistered: tuple[str, ...] = ()
    consumed: bool = False
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTwice(Refusal):
    """An optimizer of the class `optimizer` was given the parameters `names` in two groups. All
    that the group at the position `part` has are in the one at `whole`, which has more."""

    optimizer: str
    names: tuple[str, ...]
    whole: int
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedWithGraph(Refusal):
    """`copy.deepcopy` has met the tensor `name`, which has a graph: a module of the class `module`
    keeps it as `attribute`, which is set at `location`."""

    name: str
    module: str
    attribute: str
    location: Location | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeNumbers(Refusal):
    """A tensor of whole numbers, or of truth values, was to require a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAsArray(Refusal):
    """NumPy was to read the numbers of `name`, which has a graph."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedOff(Refusal):
    """`name`, which is computed, was to require no gradient any more."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterReplaced(Refusal):
    """A tensor that is no parameter was to take the place of the parameter `name`."""

    name: str


OfLeaf = (
    LeafWritten
    | NoLeaf
    | ComputedGiven
    | NothingGiven
    | CopiedWithGraph
    | GivenTwice
    | WholeNumbers
    | ReadAsArray
    | SwitchedOff
    | ParameterReplaced
)
