"""What the user suffers from, and what was measured at one op: what it did to non-finite values,
and what else is wrong there."""

from __future__ import annotations

from enum import StrEnum

from gradscope.dataclass import dataclass
from gradscope.facts.places import Call, Location, LostBound, Normed


class Trouble(StrEnum):
    """What is the matter with a value."""

    NAN = "nan"
    INF = "inf"
    ZERO = "zero"  # or so small that nothing is learnt
    NONE = "none"  # it is missing
    WRONG = "wrong"
    EXPLODING = "exploding"
    HUGE = "huge"  # by one op, and finite
    DIVERGING = "diverging"
    UNCHANGED = "unchanged"  # by a step that was to move it


class Subject(StrEnum):
    """Which of the values that a training step lives by."""

    LOSS = "loss"
    GRADIENT = "grad"
    PARAMETER = "param"  # after the optimizer's step
    VALUE = "value"  # over which the program raised by itself
    SENT = "sent"  # to another rank, where it did harm


@dataclass(frozen=True, slots=True)
class Unexamined:
    """A step that was only watched when something went wrong there: `subject` was not finite, or
    (None) the program itself gave up. Since step `since` the values may have been bad.
    `only_compiled`: nothing was when it ran again without `torch.compile`."""

    step: int
    since: int
    subject: Subject | None
    only_compiled: bool = False


@dataclass(frozen=True, slots=True)
class Symptom:
    """What the user suffers from. `bad` of `numel` elements are (both 0 where nobody counted); of a
    zero gradient that has only faded none is. `event` is the event that made the bad value, None
    where it was not observed."""

    trouble: Trouble
    subject: Subject
    step: int
    tensor: str
    bad: int = 0
    numel: int = 0
    first_index: tuple[int, ...] = ()
    event: int | None = None

    @property
    def kind(self) -> str:
        """As reports for programs spell it: nan-loss, inf-grad, zero-grad ..."""
        return f"{self.trouble}-{self.subject}"


class Kind(StrEnum):
    """What an event does to non-finite values."""

    BIRTH = "birth"  # finite inputs, non-finite output
    PROPAGATION = "propagation"  # non-finite in, non-finite out
    KILL = "kill"  # non-finite in, finite out
    REVIVAL = "revival"  # finite grad_output, but a saved tensor holds what a kill had hidden
    CONSTANT = "constant"  # made from a Python constant: `masked_fill(mask, -inf)`
    SOURCE = "source"  # came into the program from outside: data, a parameter, a literal
    RECEIVED = "received"  # came from another rank, by a collective
    UNINITIALIZED = "uninitialized"  # read from memory that nothing had written


class Phase(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Operand:
    """What was measured of one tensor (or number) that an op read or wrote.

    `role` is the name in the op's schema (`self`, `other`, `exponent`), `output`, or
    `grad_output`. `name` is the user's: a variable, an attribute or a parameter fqn; `text` what
    stands in the source for an operand without a name (`1 - p`). `at` is the value at the event's
    `index` (None where the shapes do not allow one). `min` and `max` are over the finite elements.
    `masked_rows` counts the rows along the last dimension that are -inf throughout. `held_as` says
    what holds it: "parameter", "buffer", "leaf", "constant", "data" or "".
    """

    role: str
    name: str | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    numel: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    masked_rows: int = 0
    zeros: int = 0
    min: float | None = None
    max: float | None = None
    at: float | None = None
    held_as: str = ""
    requires_grad: bool = False
    text: str = ""

    @property
    def bad(self) -> int:
        return self.nan + self.posinf + self.neginf

    @property
    def called(self) -> str:
        """What the program calls it; empty where neither a name nor an expression is known."""
        return self.name or self.text

    @property
    def largest(self) -> float | None:
        """The largest |element| among the finite ones."""
        ends = [abs(end) for end in (self.min, self.max) if end is not None]
        return max(ends, default=None)


@dataclass(frozen=True, slots=True)
class Ancestor:
    """One node of the autograd graph above a call: how its operand was made, up to a few levels.

    `inputs` has one entry an input of the node, None where no gradient flows.
    """

    node: str
    call: Call | None
    inputs: tuple[Ancestor | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a dataset, and the worker (from 0, -1 where it is not known) that has made it.
    `index` is None where the batch does not tell. `op` and `location` are where its values turn bad
    when it is made again; None where they do not, or no op of torch's is at work."""

    index: int | None
    worker: int
    op: str = ""
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class ArrayFault:
    """Of what NumPy has warned: `op` ("divide") has given NaN or inf, as `trouble` says, of finite
    elements of an array. `location` is the expression."""

    op: str
    trouble: Trouble
    location: Location


@dataclass(frozen=True, slots=True)
class Event:
    """One op that took or gave a non-finite value.

    `call` is what ran: in backward, the op inside the node's formula. `blame` is the forward call
    to which it belongs: the call that made the running autograd node in backward, `call` itself
    in forward. `index` is the first bad element of the output that `bad`, `numel`, `rows`
    describe; `rows` are the first few distinct positions along dimension 0 that hold bad
    elements, `row_count` how many there are. `grad_output` is what came into the running node at
    that element. `sources` are the ids of the events whose bad values it read. `hidden_by` is the
    call that threw the value away going forward (where, indexing, ...), in backward events whose
    grad_output is exactly 0. `path` are the forward calls from this one to the loss, nearest first;
    of a value that never gets there those to the one that hid it. `given_by` is the parameter by
    which an operand is negative, or a divisor or the only operand 0, where it is one alone.
    `shifted` is the sum with a number, or difference, by which alone the only operand is negative.
    `normed` is of a layer whose weight is 0, and is divided by its norm. `bound` was to keep the
    operands off a point, and is rounded to it.
    """

    id: int
    step: int
    kind: Kind
    phase: Phase
    call: Call
    blame: Call
    node: str | None = None
    inputs: tuple[Operand, ...] = ()
    saved: tuple[Operand, ...] = ()  # the blamed call's own operands, named as in its schema
    output: Operand | None = None
    index: tuple[int, ...] = ()
    bad: int = 0
    numel: int = 0
    rows: tuple[int, ...] = ()
    row_count: int = 0
    grad_output: float | None = None
    sources: tuple[int, ...] = ()
    hidden_by: Call | None = None
    ancestry: tuple[Ancestor | None, ...] = ()
    path: tuple[Call, ...] = ()
    branches: tuple[Call, ...] = ()  # the calls whose infinite gradients cancelled here: inf - inf
    scalars: tuple[tuple[str, object], ...] = ()  # non-tensor arguments: (schema name, value)
    given_by: Operand | None = None
    shifted: Ancestor | None = None
    normed: Normed | None = None
    bound: LostBound | None = None
    autocast: bool = False  # it ran inside of a block of `torch.autocast`
    sample: Sample | None = None  # of bad data that a worker of a DataLoader has made

    @property
    def op(self) -> str:
        return self.blame.op

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The blamed call's operands. In backward they are what its node had saved: `inputs` are
        then the operands of one op inside the node's formula."""
        return self.saved if self.phase is Phase.BACKWARD and self.saved else self.inputs

    def operand(self, role: str) -> Operand | None:
        """The blamed call's operand of that schema name."""
        return next((operand for operand in self.operands if operand.role == role), None)

    def values(self) -> dict[str, float]:
        """The blamed call's operands at `index`: name in the schema -> value."""
        found = {name: value for name, value in self.scalars if isinstance(value, int | float)}
        found |= {operand.role: operand.at for operand in self.operands if operand.at is not None}
        return {name: float(value) for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class NanRead:
    """NaN that the program made a number, an array or a text of (`item()`, `numpy()`, `print`), or
    compared (`score < best`), of a value on which no gradient depends: a metric, a validation loss.
    `event` is where the NaN was born, or came in; `times` of the last step's reads at the place,
    all of which gave NaN. `finite_before`: one of an earlier step did not. `held_as` is what keeps
    a NaN that nobody has read, when the next backward begins or the program ends; or a sum that
    became NaN of numbers that were read, some of which were finite."""

    event: Event
    times: int
    location: Location
    finite_before: bool = False
    held_as: str = ""


@dataclass(frozen=True, slots=True)
class UnseenRead:
    """A NaN that the program read before the backward of `step`, while it was only watched; None
    for the place: that it holds in the end, `held_as` an expression."""

    step: int
    location: Location | None
    held_as: str = ""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """`call` saved a tensor, the op `writer` changed it at `location`, and the backward node `node`
    read it all the same: what changed it went around autograd's version counter (`.data`), or it is
    the attribute `kept` of a custom Function's ctx, set at `kept_at`, whose version nobody counts.
    """

    step: int
    call: Call
    node: str
    writer: str
    location: Location
    kept: str = ""
    kept_at: Location | None = None


class DistanceOf(StrEnum):
    """What the distance to a singular point is that of."""

    ELEMENT = "element"  # one number
    PAIR = "pair"  # two operands' elements at one place, from the origin
    MATRIX = "matrix"  # the smallest singular value of a matrix, relative to the largest
    VALUES = "values"  # two eigenvalues or singular values from each other, relative to the largest


@dataclass(frozen=True, slots=True)
class Approach:
    """An operand that came near a point where its op, or the slope of it, is singular.

    `role` is the operand's name in the op's schema, `value` the element nearest to `point`, and
    `reach` the distance at which a guard would have held it. `near` of `numel` elements (matrices)
    lie within.
    """

    call: Call
    step: int
    role: str
    dtype: str
    point: float
    value: float
    distance: float
    reach: float
    near: int
    numel: int
    measured: DistanceOf = DistanceOf.ELEMENT


@dataclass(frozen=True, slots=True)
class Headroom:
    """A result in half precision near the end of its dtype.

    `largest` is the largest magnitude among its elements, of which `near` of `numel` lie beyond
    the part of the range that is to stay free: above it, or below the smallest normal number
    where `limit` is that one.
    """

    call: Call
    step: int
    dtype: str
    largest: float
    limit: float
    near: int
    numel: int


@dataclass(frozen=True, slots=True)
class Broadcast:
    """An op that was done with each of `size` elements and every one of `size` others, one operand
    of shape (size, 1) and the other of (size,), of whose results a loss is one number.
    `meets_columns`: on the way there they meet others of shape (size, 1)."""

    call: Call
    step: int
    size: int
    operands: tuple[Operand, ...]
    meets_columns: bool = False


@dataclass(frozen=True, slots=True)
class Steep:
    """The elements of a gradient that an op's backward multiplied by far more than the others.

    `count` of `numel` elements have such slopes, the largest is `slope`, and `others` is the
    largest of the rest (None: there is no rest). `index` is the first of them.

    `operand` is the one that is next to a singular point of the op, with its value at `index`, as
    far as the op table knows such a point: `near` is the largest distance from it of the steep
    elements, `far` the smallest of the rest. `in_reach`: rounding alone could put it there. `own`:
    the steep slope is that towards this operand.
    """

    slope: float
    others: float | None
    count: int
    numel: int
    index: tuple[int, ...]
    operand: Operand | None = None
    near: float | None = None
    far: float | None = None
    in_reach: bool = False
    own: bool = True


@dataclass(frozen=True, slots=True)
class Leap:
    """An op with `steep` slopes.

    `earlier` is the largest slope of the same call at the steps before, None without any. `stretch`
    is the slope in units of the values: times the size of what the op read, over the size of what
    it gave; near 1 where the slope comes of the units alone, None where one of the two is 0.
    `explained` is the largest number that the op read or gave. `leaf` is the one below that got the
    largest gradient through this op: `norm` is the norm of that, `carried` how many times the
    gradient that came to the steep elements, and the one that the others handed on, it is at
    least; `leaf_stretch` is as `stretch`, between the leaf and what the op gave. `by_factor`: the
    gradient was multiplied by what `call` gave. `crossed`: the one number that it divides by lay on
    the other side of 0 before.
    """

    step: int
    call: Call
    steep: Steep
    earlier: float | None
    stretch: float | None
    explained: float
    leaf: str
    norm: float
    carried: float
    leaf_stretch: float | None
    by_factor: bool = False
    crossed: bool = False
