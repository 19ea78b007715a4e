"""About the values that ops are given, and give."""

from enum import StrEnum

from gradscope.facts.places import Call, Location, Normed
from gradscope.facts.refusals import Unfit
from gradscope.facts.requests.request import Request
from gradscope.facts.usage import Flat


class HarmlessOperand(Request):
    """A harmless operand where the result is thrown away: `hidden` from the loss, or met by it."""

    hidden: bool


class FillByMask(Request):
    """Fill in the infinite number where a mask that is multiplied by it is not 0."""


class KeepOff(Request):
    """Keep an operand of the op off the edge on which it lies, for good. `used` is the call of the
    op, where the finding points at another one."""

    used: Call | None = None


class DivideByOne(Request):
    """Divide by 1 where the divisor is 0: 0 / 0 counts as 0, as does a negative power of 0, or of
    what has none since it is below 0.
    `is_total`: it is one number of data, as a count or a sum of weights, which 1 may stand for."""

    is_total: bool = False


class Inside(StrEnum):
    """What keeps numbers inside of a range."""

    SOFTPLUS = "softplus"  # above 0
    SIGMOID = "sigmoid"  # between 0 and 1
    CLAMP = "clamp"  # at the ends, 0 and 1


class LearnInside(Request):
    """A function that stays in a range for the ReLU at `made`, or around what is `signed`: that, or
    its `argument`, by name and position."""

    made: Location
    signed: bool
    argument: tuple[str, int] | None = None
    by: Inside = Inside.SOFTPLUS


class LearnPartInside(Request):
    """The same around what the culprit reads, for all that read it: one of the parts into which a
    layer's output is split, of which the others may be any number."""


class LearnLogarithm(Request):
    """Learn the logarithm of the parameter that the program calls `name`, which has to be positive
    and may be any number."""

    name: str


class StartAtOne(Request):
    """Ones for the zeros that the parameter which the program calls `name` starts with."""

    name: str


class WithoutNorm(Request):
    """Leave the layer that has a weight of zeros without `weight_norm`."""

    normed: Normed


class ZeroGain(Request):
    """Set g to 0 at a place that sets v to 0, of a weight that is g * v / |v|."""

    place: Location


class FiniteStart(Request):
    """A large finite number for the inf that the calls at `written` put into a parameter."""

    written: tuple[Location, ...]


class MatchShapes(Request):
    """Take the last dimension, of size 1, off the operand that is called `column` in the schema of
    the op, or give the one called `row` such a dimension; this first where there are `others` of
    the column's shape."""

    column: str
    row: str
    others: bool = False


class GiveScores(Request):
    """For the loss at `taken` what goes into `op`, and no probabilities or bounded values; or the
    logarithms of these, where that is what the loss takes."""

    op: str
    taken: Location | None
    logarithms: bool


class TakeScores(Request):
    """Let the loss normalise the raw scores that it is given: `cross_entropy`."""


class NormaliseScores(Request):
    """Give the loss the logarithms of probabilities in the place of raw scores, its first argument:
    `log_softmax` of these, along the last dimension."""


class ScaleTarget(Request):
    """Bring the target of a loss from `low` and `high` to 0 and 1."""

    low: float
    high: float


class LogTarget(Request):
    """Tell `kl_div` that its target holds log-probabilities."""


class AlongClasses(Request):
    """Let `op` normalise along another dimension, that of the classes."""

    op: str
    dim: int


class TakeSigmoid(Request):
    """A sigmoid in the place of `op`, a softmax over one element."""

    op: str


class TakeLogits(Request):
    """The loss at a place, which takes probabilities, as the one that takes their logits."""

    place: Location


class LeaveOutRectifier(Request):
    """Give what a model's last layer makes, without the rectifier around it, or `put_at` behind it
    in a Sequential."""

    put_at: Location | None = None
    built_at: Location | None = None  # where a function gives the Sequential that it ends


class BoundIndex(Request):
    """Let the positions that are computed end with the last one of dimension `dim`, which they are
    for."""

    dim: int


class GiveLogits(Request):
    """Give a distribution the logits that its probabilities are made of."""


class AddBehind(Request):
    """Add an epsilon to the result of a call that is greater than 0 in mathematics."""

    made: Call


class RaiseAbove(Request):
    """Add `least` to the result of a call, which is above 0 and has to be above that."""

    made: Call
    least: float


class SelectElements(Request):
    """Reduce over the elements at which the op has a value: those of its data tell which."""


class CleanByMask(Request):
    """Put 0 in the place of bad data where a mask of the program tells it."""


class ShiftDiagonal(Request):
    """Let the triangle that is masked begin one diagonal farther `up`, or down: each row is to keep
    the element on its diagonal."""

    up: bool


class DivideArrayByOne(Request):
    """Divide an array of NumPy by 1 where it is divided by 0."""


class StableForm(Request):
    """Another form of the expression around the op, which computes the same."""

    place: Location | None = None  # of what is to have one, where that is not the culprit


class WiderDtype(Request):
    """Compute the op in a wider dtype."""


class WidenBound(Request):
    """Compute what a bound is of in a wider dtype, and what follows. `made` is where that was made,
    nearest first."""

    made: tuple[Location, ...]


class WiderState(Request):
    """Keep what is carried from step to step in a wider dtype, and compute with it in that."""


class AllowEmpty(Request):
    """A result for what the op does with nothing: no elements, no targets, no keys."""


class LeaveOutNothing(Request):
    """Go on without what an op refuses, where its operand holds nothing: without that turn of the
    loop, or with a loss of 0. It `joins` the tensors of a list; `graph` is a variable that has a
    graph."""

    joins: bool
    graph: str


class AddToDiagonal(Request):
    """Add `size` to the diagonal of the matrix that the op takes, the user's `name`."""

    size: float
    name: str


class Symmetrize(Request):
    """The mean of a matrix and its transpose as the argument `role`, the one at `position`."""

    role: str
    position: int | None


class CastOperand(Request):
    """Give the operand `role`, the user's `name`, the dtype `wanted`."""

    role: str
    wanted: str
    name: str | None


class FitNumber(Request):
    """Write the largest number of the dtype in the place of one that it cannot hold."""

    unfit: Unfit


class FitCast(Request):
    """Cast what ends with the range of its own dtype, as a mask's fill, to the end of `dtype`'s."""

    dtype: str
    low: bool


class IgnoreTarget(Request):
    """Leave the targets of that value out."""

    value: int


class TameSlope(Request):
    """Let no gradient through where the operand `argument` is within a distance of a singular point
    of the op: `near` is just beyond the elements that are, `far` just short of all others, None
    where not measured. `own`: the steep slope is that towards this operand."""

    argument: str
    own: bool = True
    near: float | None = None
    far: float | None = None


class LinearGrowth(Request):
    """A function that is above 0 too, and grows as its operand does, in the place of `exp`."""


class Unsaturated(Request):
    """Raise the opposite probability: lowering one has no slope where it is low (`flat`)."""

    flat: Flat


class FillMemory(Request):
    """Allocate memory that is filled; `op` allocated it."""

    op: str


class FillParameter(Request):
    """Fill the parameter of that name where others of its layer are filled; `is_vector`: it has one
    dimension."""

    name: str
    is_vector: bool

    @property
    def filler(self) -> str:
        """The function of `nn.init` for it."""
        if self.name.endswith(".bias"):
            return "zeros_"
        return "ones_" if self.is_vector else "xavier_uniform_"
