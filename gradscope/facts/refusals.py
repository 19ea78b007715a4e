"""What ended the program: an op that refused its operands, and what autograd raised on, with what
had been done to the graph before that."""

from gradscope.dataclass import dataclass
from gradscope.facts.events import Operand
from gradscope.facts.magnitudes import NoGradient
from gradscope.facts.places import Call, Location


@dataclass(frozen=True, slots=True)
class Write:
    """One op that changed a tensor in place, or an update by `optimizer`. `module` is the class of
    the library's layer that did it. `recorded`: autograd made a node of it. `lasts`: it went into a
    leaf, which later steps read too."""

    op: str
    location: Location | None
    frames: tuple[Location, ...] = ()
    optimizer: str = ""
    module: str = ""
    recorded: bool = False
    lasts: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """A value with a graph that the program still held when the backward called at `backward` was
    over: `name` reaches it there. `parts`: the name is that of a "tuple" or "list" of such. `kept`:
    it still did when autograd refused, after the next forward pass."""

    name: str
    backward: Location
    parts: str = ""
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """A part of the graph through which an earlier backward, called at `backward`, has run.

    `made` is the call that made the value in which it ends, `name` the user's name of that value,
    `used` the call that leads there from the present loss, None where the loss itself is in it;
    `first_use` the one of the earlier loss. `again`: the line of `made` has run again since, and it
    was not `once` that the loop around the backward was led there: the outermost line on the way
    to `made` through which nothing has run since. `carried` are the ways to reach the value.
    `calls` made the part, those `above` it lead on to the present loss; `updates` are those made
    since, and what else was written into leaves of it; `trained`: one of them moved these. `apart`:
    an optimizer that has not stepped since holds none, and others that the present loss depends on.
    `anew`: the present loss has read each leaf of it once more, in the same module or line.
    `constant`: the gradients that the earlier backward handed out are numbers in the present loss.
    `weighed` are the calls in which the earlier loss reads the value, where it does no more than
    multiply by it what depends on other leaves, and the present one is for the leaves of the value
    alone; `entwined`: what it multiplies depends on some of these as well.
    """

    made: Call | None
    name: str = ""
    used: Call | None = None
    first_use: Call | None = None
    backward: Location | None = None
    carried: tuple[Carried, ...] = ()
    again: bool = False
    once: Location | None = None
    calls: tuple[Call, ...] = ()
    above: tuple[Call, ...] = ()
    updates: tuple[Write, ...] = ()
    trained: bool = False
    apart: bool = False
    anew: bool = False
    constant: bool = False
    weighed: tuple[Call, ...] = ()
    entwined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`step` counts the backward passes before it, `raised_at` is the user's line that raised."""

    step: int
    raised_at: Location | None = None

    @property
    def is_seen(self) -> bool:
        """Whether what led to it was looked at."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedInPlace(Refusal):
    """A tensor that `saved` keeps for its backward under the name `role` has another version than
    it had then: `writes` have changed it since, in this order. `above` are the calls between it and
    the loss. `apart`: an optimizer that has not stepped since holds parameters of the present loss,
    and none that were stepped. `cleared`: the gradients that the updates took are gone. `shared`
    tells of an earlier pass through the same part of the graph, if there was one."""

    saved: Call | None = None
    role: str = ""
    name: str = ""
    shape: tuple[int, ...] = ()
    writes: tuple[Write, ...] = ()
    above: tuple[Call, ...] = ()
    apart: bool = False
    cleared: bool = False
    shared: Shared | None = None

    @property
    def is_seen(self) -> bool:
        return bool(self.saved and self.writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFreed(Refusal):
    """What an earlier backward has freed was needed again."""

    shared: Shared

    @property
    def is_seen(self) -> bool:
        return self.shared.made is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutGraph(Refusal):
    """What was to be differentiated has no graph: where `reason` is frozen or leafless, nothing
    that the program computed with requires grad. `location` and `related` are as in `Absence`,
    `frozen` are parameters that do not require it. `to_learn` are the modules of them that an
    optimizer holds; `turns` are where the program had come to, the innermost place first, if these
    had learnt something before."""

    reason: NoGradient
    call: Call | None = None
    location: Location | None = None
    related: Location | None = None
    frozen: tuple[str, ...] = ()
    to_learn: tuple[str, ...] = ()
    turns: tuple[Location, ...] = ()


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
class PastScaler(Refusal):
    """A GradScaler was to adapt its `scale` to steps that went past it: `update` is the last one,
    along gradients that it had not divided by the scale."""

    update: Write
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnscaledTwice(Refusal):
    """A GradScaler was to divide the gradients by its scale again, before the step that lets it
    forget that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewWritten(Refusal):
    """An in-place op on one of several views that a function gives at once, or a view that a custom
    Function gives: `maker` is that."""

    name: str
    maker: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScalar(Refusal):
    """backward() of more than one number: `made` gave the tensor."""

    name: str
    shape: tuple[int, ...]
    made: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUsed(Refusal):
    """`torch.autograd.grad` was asked for the gradient of `name`, on which the result does not
    depend. `reason` is as in `WithoutGraph`, None where nothing was cut, leafless where it does
    not require a gradient itself. `instead` is the one leaf, other than parameters, on which it
    does depend; `read` the op that read its memory by another tensor, as the one that it is a view
    of, and `location` where the function that asks called that."""

    name: str
    instead: str = ""
    read: Call | None = None
    reason: NoGradient | None = None
    call: Call | None = None
    location: Location | None = None
    related: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreduced(Refusal):
    """DistributedDataParallel waits for the gradients of `parameters`, which the last backward did
    not give. `location` is where the first one's layer is defined."""

    parameters: tuple[str, ...]
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOfAnother(Refusal):
    """An optimizer was to step with what it keeps of `name` under `key`, which is of the shape
    `kept` and not of the parameter's, `shape`: it was saved for another. `in_order`: the shapes
    that it keeps are those of its parameters, in another order. `location` is where it was made."""

    optimizer: str
    name: str
    shape: tuple[int, ...]
    key: str
    kept: tuple[int, ...]
    in_order: bool
    location: Location | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRefused(Refusal):
    """An optimizer of the class `optimizer` was to step along gradients that are `sparse`, where it
    takes dense ones alone, or along dense ones, where it takes sparse ones alone: those of the
    parameters `names`, out of all `held` that have a gradient. `layers` are the places where the
    modules are made that choose the layout of their gradients themselves, one for each of the
    parameters, or none. `location` is where the optimizer was made."""

    optimizer: str
    sparse: bool
    names: tuple[str, ...]
    held: int
    layers: tuple[Location, ...]
    location: Location | None


AnyRefusal = (
    ChangedInPlace
    | GraphFreed
    | WithoutGraph
    | LeafWritten
    | NoLeaf
    | PastScaler
    | UnscaledTwice
    | StateOfAnother
    | LayoutRefused
    | ViewWritten
    | NotScalar
    | NotUsed
    | Unreduced
)


# Of an op


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


Objected = Spectrum | OutOfRange | OutOfDomain | Unfit | SingleItem | Nothing


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
