"""What became of the gradients between the passes that made them and the steps of an optimizer."""

import math

from gradscope.dataclass import dataclass
from gradscope.facts.places import Call, Location


@dataclass(frozen=True, slots=True)
class Movement:
    """What an update after the pass `step` changed of parameters. `pulled`: elements in half
    precision that were looked at and whose gradient was not 0; `still`: those of them that have the
    same value after it. `leaf` is the parameter with most of these, `scale` the mean size of its
    elements.

    Where gradients of norm `total` had been clipped to `bound` at `clipped_at`, `moved` is the
    length of what the step changed over that of the weight, of the median weight, without what
    decay pulls straight to 0."""

    step: int
    lr: float
    pulled: int
    still: int
    leaf: str
    dtype: str
    scale: float
    moved: float = math.inf
    bound: float = math.inf
    total: float = 0.0
    clipped_at: Location | None = None

    @property
    def kept(self) -> float:
        """The part of the gradient's length that the clipping left."""
        return min(1.0, self.bound / self.total) if self.total else 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """What sets the learning rate of an optimizer: the class, where it was `made`, where it is
    moved on, and how often it was; of several, what was moved on most often. `base` is the rate
    that it multiplies by what a function of the program gives, at `given_by`, None where it has
    none; `gamma` what it multiplies it by again and again. Of one that waits for a plateau: whether
    it waits until a value `rises` no further, the first of the `values` that it was told, up to the
    one after which it lowered the rate, at the pass `lowered_at`, and the `latest`."""

    name: str
    made: Location | None = None
    moved_at: Location | None = None
    moves: int = 0
    base: float | None = None
    gamma: float | None = None
    given_by: Location | None = None
    rises: bool = False
    values: tuple[float, ...] = ()
    latest: float | None = None
    lowered_at: int | None = None

    @property
    def waits_in_vain(self) -> bool:
        """Whether what is to rise has fallen."""
        return self.rises and self.latest is not None and self.latest < self.values[0]

    @property
    def is_upside_down(self) -> bool:
        """Whether each value was the best so far in the other direction, up to the one after which
        it took them for a plateau."""
        pairs = list(zip(self.values, self.values[1:], strict=False))
        worse = [one > other if self.rises else one < other for one, other in pairs]
        return self.lowered_at is not None and len(worse) > 1 and all(worse)


@dataclass(frozen=True, slots=True)
class Rates:
    """The learning rates of an optimizer, that of the group with the largest. `idle`: updates in a
    row, up to the last one, with less than a millionth of `peak`, which it had until then; `since`
    is the pass before the first of them. `asleep`: the first updates, before one with a rate other
    than 0."""

    peak: float = 0.0
    last: float = 0.0
    idle: int = 0
    since: int = 0
    asleep: int = 0


@dataclass(frozen=True, slots=True)
class Skipping:
    """What a GradScaler did each time that it was asked to step, at `location`. `skipped`: times in
    a row, up to the last one, in which it left the optimizer out, with the scale `first` in the
    first of them and `last` in the last."""

    calls: int
    skipped: int
    first: float
    last: float
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Overflow:
    """What an optimizer keeps of finite gradients was inf after the pass `step`: `key` of `leaf`,
    and so of `parameters` in all. `largest` is the largest element of the gradient of `leaf`, and
    `dtype` that of what is kept. Or the norm that gradients were divided by, which clips them at
    `clipped_at`."""

    step: int
    parameters: int
    dtype: str
    key: str = ""
    leaf: str = ""
    largest: float = 0.0
    clipped_at: Location | None = None


@dataclass(frozen=True, slots=True)
class Flat:
    """The op that, in the pass `step`, passed on the smallest part of its gradient, next to what it
    passed on `before`: `slope` is the norm that went out of it over the one that came in. `uses`
    are the calls between it and the loss, the nearest first."""

    step: int
    call: Call
    slope: float
    before: float
    uses: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Reload:
    """A state of the module `model` that was loaded into it before pass `step`, and is its own
    parameters, `passes` older: it was taken at `taken_at`, and is no copy. Of one that was just
    taken (0 passes), and not for the first time: `meant` is the expression of the only module there
    of its class that has such parameters, and is trained."""

    model: str
    parameters: int
    passes: int
    step: int
    taken_at: Location | None = None
    loaded_at: Location | None = None
    meant: str = ""


@dataclass(frozen=True, slots=True)
class Undoing:
    """The weights of a module `source`, which no one has changed meanwhile, that were loaded into
    the module `model` again and again, and have undone `times` times what `optimizer` had done
    since the time before; `step` is the pass by which it shows."""

    model: str
    source: str
    times: int
    optimizer: str
    step: int
    loaded_at: Location | None = None


@dataclass(frozen=True, slots=True)
class LostAverage:
    """Averages of each of `targets` and one of `sources`, parameters by their names, which are
    computed at `location`, in step `step` for the last time as far as was seen, and which nobody
    reads: the targets stay as they were while the sources are trained. `may_write`: that line may
    write into the targets in place, since no graph is recorded of it."""

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    step: int
    location: Location | None
    may_write: bool


@dataclass(frozen=True, slots=True)
class UnreadFlag:
    """`requires_grad` that was set to `value` where torch does not read it: as an `attribute` of
    parameters, `held` by their names, that is spelled otherwise, or as one `of_module`. `trained`:
    an optimizer holds one of these parameters. `location` is where the program does so first."""

    attribute: str
    value: bool
    of_module: bool
    held: tuple[str, ...]
    trained: bool
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class UnknownNames:
    """`functional_call`, at `location`, of the module `model` that was given tensors by `names`
    that it does not have, of `given` in all, while its own parameters `left` stayed in use. With
    `prefix` before them they are names of its own; empty where nothing tells. `made_at` is what
    asks for the names, or writes them."""

    model: str
    names: tuple[str, ...]
    given: int
    left: tuple[str, ...]
    prefix: str
    step: int
    location: Location | None = None
    made_at: Location | None = None

    @property
    def is_sure(self) -> bool:
        """Whether none of them is for somebody else."""
        return bool(self.prefix) or len(self.names) == self.given


@dataclass(frozen=True, slots=True)
class Holder:
    """A module in sight: the expression that reaches it, and those of the leaves in it that had a
    gradient. The optimizer holds `held` of the `of` parameters in it. `bare`: it is no module, and
    the parameter itself."""

    text: str
    leaves: tuple[str, ...]
    held: int
    of: int
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """The modules that one frame could have given an optimizer, which is made at `place` or by
    what is called there."""

    place: Location
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """One of an optimizer's groups: those of its parameters that had a gradient."""

    weight_decay: float
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """How one optimizer used the backward passes that gave a gradient to what it holds.

    `cycles`: of how many passes each of its first updates was made, `piles`: how many of them were
    in the gradients, those of earlier updates that nobody has cleared among them. `factors`: what a
    mean is multiplied by in each of its first passes to be the loss, without the scale of a
    GradScaler; None where there is none, or nobody knows; `written`: what of the first one stands
    in the source as a number. `discards`: of how many passes the gradients were thrown away, each
    time that they were cleared unused; `between`: of how many in all before each of its first
    updates, since the one before. `left`: passes after the last. `discarded` and `used` are the
    first of these passes, by their steps, and `swept` discarded ones that were cleared with a later
    one, the second step, which was also for what no optimizer holds. `after` are the last passes
    before its first updates, whomever they were for; `last` is the last of all.

    `made` is where the optimizer was, None where nobody saw it, with the `scopes` there, the
    innermost first, and `scheduled_at` where schedules for it were; `steps_at` where it steps, and
    `clears_at` where gradients are cleared that it has not used. `handled`: the program has
    computed with gradients itself; `scaled`: by multiplying with a number, at `scaled_at`. `ranks`:
    over how many DistributedDataParallel averages them. `held` are the parameters that had a
    gradient, `groups` has them as they were given, and `still` says that none has changed. `twice`
    are those of a module that a group lists twice, the second time at `twice_at`.
    `movements` are of optimizers of torch's alone, which round each step as it is, and of clipped
    steps or half precision. `norms` are the L2 norms of all gradients at updates from the first to
    the last, ever fewer of them, by the pass before; `flat` is known where they fade.
    `blind_to_scale` is as of an `Update`; `overflow` is known of optimizers of torch's; `lost_at`
    is where `step()` of one that the program defines, which is its `own`, gives the new values to a
    name alone.
    """

    optimizer: str
    updates: int
    passes: int
    last: int
    cycles: tuple[int, ...] = ()
    piles: tuple[int, ...] = ()
    factors: tuple[float | None, ...] = ()
    written: float = 1.0
    discards: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    left: int = 0
    discarded: tuple[int, ...] = ()
    used: tuple[int, ...] = ()
    swept: tuple[tuple[int, int], ...] = ()
    after: tuple[int, ...] = ()
    made: Location | None = None
    scopes: tuple[Scope, ...] = ()
    steps_at: Location | None = None
    clears_at: Location | None = None
    handled: bool = False
    scaled: float = 1.0
    scaled_at: Location | None = None
    ranks: int = 1
    held: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    twice: tuple[str, ...] = ()
    twice_at: Location | None = None
    still: bool = False
    rates: Rates = Rates()
    schedule: Schedule | None = None
    scheduled_at: tuple[Location, ...] = ()
    skipping: Skipping | None = None
    movements: tuple[Movement, ...] = ()
    norms: tuple[tuple[int, float], ...] = ()
    flat: Flat | None = None
    blind_to_scale: bool = False
    overflow: Overflow | None = None
    own: bool = False
    lost_at: Location | None = None


@dataclass(frozen=True, slots=True)
class ScaledUpdate:
    """The first update at `location` by an optimizer along gradients that are `scale` times too
    large, since it went past the GradScaler that had multiplied the loss. `blind`: the optimizer
    divides by the size of its gradients."""

    step: int
    optimizer: str
    scale: float
    blind: bool
    location: Location | None


@dataclass(frozen=True, slots=True)
class UnscaledPass:
    """A backward pass at `location` of a loss that no GradScaler had multiplied, whose gradients
    one divided by its `scale` with those of losses that it had, for the same `optimizer`."""

    step: int
    optimizer: str
    scale: float
    location: Location | None
