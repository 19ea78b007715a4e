"""Losses that are given what they do not take, or compare what cannot be equal."""

import math

from gradscope.dataclass import dataclass
from gradscope.facts.places import Call, Location


@dataclass(frozen=True, slots=True)
class Scores:
    """A loss, `taken`, that takes raw scores or log-probabilities of `classes`, and is given the
    probabilities that the call `made` gives. `along`: or log-probabilities along the first of two
    dimensions, where the loss has its classes along the second. `logarithms`: it takes those.
    `raw`: it is given scores, `made` is the loss itself. `weights`: `taken` is no loss, but a sum
    over the second dimension of `along`, of `classes` terms, weighted by what `made` gives along
    the first, which is that of the samples."""

    made: Call
    taken: Call
    step: int
    classes: int
    logarithms: bool
    along: tuple[int, int] | None = None
    raw: bool = False
    weights: bool = False


@dataclass(frozen=True, slots=True)
class Identical:
    """A weight, by name, whose `units` were the same at a step, after an update, and got the same
    gradient. `of_inputs`: those that its layer reads. `call` is the product with it."""

    name: str
    units: int
    of_inputs: bool
    call: Call
    step: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """One module, of a class `kind`, that stands `times` times in `container`, and was called more
    than once within one call of what is around it, with the same input each time. `draws`: Dropout
    in it makes its results differ. `made` is where it is put there so often."""

    container: str
    kind: str
    times: int
    parameters: int
    draws: bool
    step: int
    made: Location | None


@dataclass(frozen=True, slots=True)
class Lone:
    """A normalisation of results of this shape, each of them by itself."""

    call: Call
    step: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DataMade:
    """Where the program gives data a name, and how that is written there. `even`: it has columns,
    and none of them is one number all along; `floats`: it holds numbers with a fraction."""

    location: Location
    name: str
    even: bool
    floats: bool


@dataclass(frozen=True, slots=True)
class Saturated:
    """An activation with two bounds of whose results at least the part `share` had no slope, near
    both bounds, at each of the `steps` that were looked at in full, from one of the first on.

    It is given the product of a trained `weight`, which by itself makes numbers `gain` times as
    large, with numbers of the size `read` (root mean square), which are no results (`of_data`)."""

    call: Call
    steps: tuple[int, ...]
    share: float
    weight: str
    gain: float
    read: float
    of_data: bool
    made: DataMade | None = None


@dataclass(frozen=True, slots=True)
class Unreached:
    """A loss, `taken`, that compares what the call `made` gives, from `low` to `high`, with targets
    of which the part `share` lies beyond. `alone`: the pass has no other result of that call.
    `made` is the loss itself where that makes the chances of logits.

    `found` are the least and the largest target, `labels`: there are no others."""

    made: Call
    taken: Call
    step: int
    low: float
    high: float
    share: float
    alone: bool
    found: tuple[float, float]
    labels: bool


@dataclass(frozen=True, slots=True)
class Gain:
    """By how much the product that a call makes is larger than the one before it, or than the data.
    `made` is where the user has filled the weight, or `computed`: the one that this is made of.
    `is_left`: the weight is the first operand; `leaf` is its position among those of the pass, or
    that of what it is computed with."""

    call: Call
    factor: float
    made: Location | None = None
    computed: bool = False
    is_left: bool = False
    leaf: int | None = None


@dataclass(frozen=True, slots=True)
class Oversized:
    """At the first step, a loss, or the difference in it, `taken`, that compares what is `given`,
    by its size, with targets of the size `wanted`; or that takes it for logits of so many
    `classes`, for which that is the logarithm of their number. The loss grows as that power of what
    is given. `gains` are of the products on the longest way there, `nodes` lie on it."""

    taken: Call
    step: int
    given: float
    wanted: float
    power: int
    classes: int
    gains: tuple[Gain, ...]
    nodes: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.given / self.wanted

    @property
    def growing(self) -> tuple[Gain, ...]:
        """The last products, from where the values were smallest."""
        ends = range(len(self.gains))
        first = max(ends, key=lambda at: math.prod(one.factor for one in self.gains[at:]))
        return self.gains[first:]

    @property
    def axis(self) -> str:
        """As in `Growth`."""
        return "time" if len({one.leaf for one in self.growing}) == 1 else "depth"

    @property
    def total(self) -> float:
        """What these together have made of the values."""
        return math.prod(one.factor for one in self.growing)
