"""What an op refused of its operands."""

from gradscope.dataclass import dataclass
from gradscope.facts.events import Operand
from gradscope.facts.places import Call, Location


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The smallest and the largest eigenvalue of a matrix that has to be `definite`, else singular
    value, in float64: of several matrices those of the one whose smallest is least. `asymmetry` is
    the largest difference of two elements that symmetry would make equal."""

    step: int
    smallest: float
    largest: float
    order: int
    asymmetry: float = 0.0
    definite: bool = True


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """Indices into a dimension of `size` elements: `bad` of `numel` lie outside of it, the first at
    `index` of the operand `role`, which is `value`; `only`: all of them are. `into` is the role of
    what is indexed, `dim` its dimension."""

    role: str
    value: int
    index: tuple[int, ...]
    bad: int
    numel: int
    size: int
    into: str
    dim: int
    only: bool


@dataclass(frozen=True, slots=True)
class Unfit:
    """A Python number, given as `role`, that lies beyond the largest of a dtype."""

    role: str
    value: float
    dtype: str
    largest: float


@dataclass(frozen=True, slots=True)
class OutOfDomain:
    """Numbers that a distribution of the class `kind`, or the op of that name, refuses as its
    `role`, which it is given at `place`, as the argument at `position` (None where another class
    hands it on): `bad` of `numel` lie outside of `low` to `high`, or on an end where that is
    `strict`. The first is `value`, at `index`.
    """

    role: str
    kind: str
    place: Location
    position: int | None
    value: float
    index: tuple[int, ...]
    bad: int
    numel: int
    low: float
    high: float
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Asymmetric:
    """A matrix that a distribution of the class `kind` refuses as its `role`, the argument at
    `position`, since `bad` of its `numel` elements differ from those on the other side of its
    diagonal, by `most` at the most."""

    role: str
    position: int | None
    kind: str
    most: float
    bad: int
    numel: int


@dataclass(frozen=True, slots=True)
class SingleItem:
    """A spread over one item for each channel, which a normalisation refuses to take. `shape` is
    that of what it was given; `recorded`: with a graph, as in training."""

    shape: tuple[int, ...]
    recorded: bool = True


@dataclass(frozen=True, slots=True)
class Nothing:
    """No elements, or no tensors, for what gives one of its elements or joins tensors: `role` is
    the operand. `graph` names a tensor with a graph, of the function that called it."""

    role: str
    graph: str = ""


@dataclass(frozen=True, slots=True)
class MixedDtypes:
    """The operand `role` has another `dtype` than what is trained, and the op runs where it has the
    `wanted` one."""

    role: str
    dtype: str
    wanted: str


Objected = (
    Spectrum | OutOfRange | OutOfDomain | Asymmetric | Unfit | SingleItem | Nothing | MixedDtypes
)


@dataclass(frozen=True, slots=True)
class Raised:
    """`why` is what was measured of the operands that the op refused, after `step` backward passes.
    `earlier` are the spectra of the same call at the steps before that were looked at in full.
    `negative` are the leaves below 0 that a matrix is made of, which is not positive definite:
    single numbers, and what stands on a diagonal."""

    step: int
    call: Call
    operands: tuple[Operand, ...]
    why: Objected
    earlier: tuple[Spectrum, ...] = ()
    negative: tuple[Operand, ...] = ()
