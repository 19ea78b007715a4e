"""How modules were used: in which mode they ran, and with which statistics."""

from gradscope.dataclass import dataclass
from gradscope.facts.places import Location


@dataclass(frozen=True, slots=True)
class ModeKept:
    """A model that is trained, and the `mode` that it was left in: "eval" at the last `times`
    passes; "train" where it ran without gradients, so many times between two passes. `last` is the
    last pass. `parts` are the classes in it that make a difference. `sites` are the user's lines,
    innermost first, where the mode was set, or where it ran; `trains_at` those where it is called
    to be trained, as far as the first passes showed. `untouched`: no BatchNorm in it has taken
    statistics of any data, here or before; each has the mean 0 and the variance 1."""

    model: str
    mode: str
    parts: tuple[str, ...]
    times: int
    passes: int
    last: int
    sites: tuple[Location, ...] = ()
    trains_at: tuple[Location, ...] = ()
    untouched: bool = False


@dataclass(frozen=True, slots=True)
class StaleStatistics:
    """A model that follows the weights of `source`, and whose BatchNorm has kept the statistics
    that it had at first while those of `source` moved. It has run without gradients in eval mode at
    `runs` steps, of which `last` is the last one. `untouched`: each has the mean 0 and the variance
    1. `written_at`: where its weights are written, as far as the steps that were looked at in full
    showed, where `own` and `other` lead to it and to `source`; `runs_at`: where it runs."""

    model: str
    source: str
    runs: int
    last: int
    untouched: bool
    written_at: Location | None = None
    runs_at: Location | None = None
    own: str = ""
    other: str = ""


@dataclass(frozen=True, slots=True)
class HastyStatistics:
    """A model in which `norms` BatchNorm, of a class `kind`, take the part `momentum` of their
    running statistics from the last batch. They are trained so, and run in eval mode at `runs`
    steps, of which `last` is the last one. `places`: where that is written."""

    model: str
    kind: str
    norms: int
    momentum: float
    runs: int
    last: int
    places: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """A call at `place` of a function `op` that drops values at random, also in eval mode: nothing
    is given as its `argument`, the one at `position`, or the same in each mode. `flag` is the
    expression there of whether the module is in train mode, empty where no module is at hand."""

    op: str
    argument: str
    position: int
    place: Location
    flag: str


@dataclass(frozen=True, slots=True)
class KeptDropout:
    """A model that is trained, and that drops values also in eval mode. `last` is the last step
    that showed it."""

    model: str
    drops: tuple[Drop, ...]
    last: int


@dataclass(frozen=True, slots=True)
class BackToTrain:
    """A call of `train()` at `place`, which `paths` lead from its module to the parts that it sets
    back to train mode; none where a library has called it. `always`: these were frozen at each of
    its calls. `layers`: their classes, where they are all of these classes that are frozen."""

    place: Location | None
    paths: tuple[str, ...]
    always: bool
    layers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvalUndone:
    """Frozen `parts` of a model, which the program has set to eval mode at `set_at`, and which each
    of `calls` has set back. They have run in train mode in `passes` passes, of which `last` is the
    last one. `kinds` are the classes in them that make a difference."""

    parts: tuple[str, ...]
    kinds: tuple[str, ...]
    passes: int
    last: int
    set_at: tuple[Location, ...]
    calls: tuple[BackToTrain, ...]


ModuleUse = ModeKept | StaleStatistics | HastyStatistics | KeptDropout | EvalUndone


@dataclass(frozen=True, slots=True)
class OwnBackward:
    """A module's class with a method `backward`, at `location`, that nobody called; `forward` is
    where its forward is, and `returned` what that returns. `passes_on`: that hands on what it is
    given, as far as was seen."""

    name: str
    location: Location | None
    forward: Location | None
    returned: Location | None
    passes_on: bool
