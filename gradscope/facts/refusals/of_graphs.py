"""What autograd raised on, with what had been done to the graph before that."""

from gradscope.dataclass import dataclass
from gradscope.facts.magnitudes import NoGradient
from gradscope.facts.places import Call, Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`step` counts the backward passes before it, `raised_at` is the user's line that raised, and
    `frames` those that had led there, innermost first, with it."""

    step: int
    raised_at: Location | None = None
    frames: tuple[Location, ...] = ()

    @property
    def is_seen(self) -> bool:
        """Whether what led to it was looked at."""
        return True


@dataclass(frozen=True, slots=True)
class Write:
    """One op that changed a tensor in place, or an update by `optimizer`. `module` is the class of
    the library's layer that did it. `recorded`: autograd made a node of it. `lasts`: it went into a
    leaf, which later steps read too. `within`: the backward of a custom Function did it."""

    op: str
    location: Location | None
    frames: tuple[Location, ...] = ()
    optimizer: str = ""
    module: str = ""
    recorded: bool = False
    lasts: bool = False
    within: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedAgain(Refusal):
    """What `checkpoint` was called for at `location` has computed other tensors when it ran again
    in backward: the first one had the shape `before`, and then `after`. None where their number
    differs."""

    location: Location | None = None
    before: tuple[int, ...] | None = None
    after: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """A value with a graph that the program still held when the backward called at `backward` was
    over: `name` reaches it there. `parts`: the name is that of a "tuple" or "list" of such. `kept`:
    it still did when autograd refused, after the next forward pass. `set_at` is the only statement
    that gives it to an attribute in the functions that make it, if it is held by one."""

    name: str
    backward: Location
    parts: str = ""
    kept: bool = False
    set_at: Location | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """A part of the graph through which an earlier backward, called at `backward`, has run.

    `made` is the call that made the value in which it ends, `name` the user's name of that value,
    `used` the call that leads there from the present loss, None where the loss itself is in it,
    and `reader` its line in the function that knows the value by this name; `first_use` the call of
    the earlier loss. `again`: the line of `made` has run again since, and it
    was not `once` that the loop around the backward was led there: the outermost line on the way
    to `made` through which nothing has run since. `carried` are the ways to reach the value.
    `calls` made the part, those `above` it lead on to the present loss; `updates` are those made
    since, and what else was written into leaves of it; `trained`: one of them moved these. `apart`:
    an optimizer that has not stepped since holds none, and others that the present loss depends on.
    `anew`: the present loss has read each leaf of it once more, in the same module or line.
    `constant`: the gradients that the earlier backward handed out are numbers in the present loss.
    `weighed` are the calls in which the earlier loss reads the value, where it does no more than
    multiply by it what depends on other leaves, and the present one is for the leaves of the value
    alone; `entwined`: what it multiplies depends on some of these as well. `dropped` is a call of
    `detach` in the present step whose result nobody keeps.
    """

    made: Call | None
    name: str = ""
    used: Call | None = None
    reader: Location | None = None
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
    dropped: Location | None = None


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
    had learnt something before. `switch` is where it had come to, likewise, when a statement at
    `location` switched gradients off for all that followed. `apart`: there are parameters, all of
    which do require a gradient."""

    reason: NoGradient
    call: Call | None = None
    location: Location | None = None
    related: Location | None = None
    frozen: tuple[str, ...] = ()
    to_learn: tuple[str, ...] = ()
    turns: tuple[Location, ...] = ()
    switch: tuple[Location, ...] = ()
    apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewWritten(Refusal):
    """An in-place op on one of several views that a function gives at once, or a view that a custom
    Function gives: `maker` is that."""

    name: str
    maker: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScalar(Refusal):
    """backward() of more than one number: `made` gave the tensor, at `location` where nothing that
    reads it there wants several numbers."""

    name: str
    shape: tuple[int, ...]
    made: Call | None = None
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """A `call` is given the `original` that the tensor `name` was computed from, or what holds
    that, as the source has them: these are its `arguments`, and those of calls after it."""

    call: Location
    arguments: tuple[Location, ...]
    original: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUsed(Refusal):
    """`torch.autograd.grad` was asked for the gradient of `name`, on which the result does not
    depend. `reason` is as in `WithoutGraph`, None where nothing was cut, leafless where it does
    not require a gradient itself. `instead` is the one leaf, other than parameters, on which it
    does depend; `read` the op that read the tensor that it is a view of, or, `copied`, a copy, and
    `location` where the function that asks called that. `original`: what `name` was computed from,
    and `read` has read in its place; `holders`: what holds `name` in that function. `given` is the
    call, at `location`, that was to be given `name`.
    """

    name: str
    instead: str = ""
    read: Call | None = None
    copied: bool = False
    original: str = ""
    holders: tuple[str, ...] = ()
    given: Given | None = None
    reason: NoGradient | None = None
    call: Call | None = None
    location: Location | None = None
    related: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplexLoss(Refusal):
    """backward() of one complex number, `name`: `made` gave it."""

    name: str
    made: Call | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedNoTensor(Refusal):
    """The forward of the custom Function `function` was to save `names` for its backward, which
    are no tensors, at `location`."""

    function: str
    names: tuple[str, ...]
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTwice(Refusal):
    """A gradient was to be differentiated, and so was the backward of `op`, which has no derivative
    of its own; `made` is the call in the forward pass. Or that of the custom Functions `functions`,
    each of which is marked at one of `marks` to be differentiated once."""

    op: str = ""
    made: Call | None = None
    functions: tuple[str, ...] = ()
    marks: tuple[Location, ...] = ()


OfGraph = (
    ChangedInPlace
    | GraphFreed
    | WithoutGraph
    | ViewWritten
    | NotScalar
    | NotUsed
    | ComplexLoss
    | SavedNoTensor
    | ComputedAgain
    | NotTwice
)
