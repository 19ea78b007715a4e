"""What became of trying a fix: it was verified, it holds with a but, it was refuted, or it was
not tried.

The parts are what was measured. The sentences about them are made in `report.trials`.
"""

from enum import Enum, auto

from gradscope.dataclass import dataclass
from gradscope.facts.effects import Effect
from gradscope.facts.events import Symptom

ROUNDING = 2.0**-20  # of the largest element: a sum of a few float32 terms in another order


@dataclass(frozen=True, slots=True)
class Cause:
    """A finding of the second run, by what it says and where. `line` is None without a place."""

    rule: str
    name: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class LossMove:
    """The loss of a step, finite in both runs, differs by `amount`: a patch that claims to keep it
    is told any, so that none counts as rounding."""

    step: int
    amount: float
    is_rounding = False


@dataclass(frozen=True, slots=True)
class GradientMove:
    """Finite elements of gradients differ, those of `name` most: by `share` of its largest
    element; None where the digest differs and no sampled element does."""

    name: str
    share: float | None

    @property
    def is_rounding(self) -> bool:
        """Whether a sum of a few float32 terms moves as much by another order."""
        return self.share is not None and self.share <= ROUNDING


Move = LossMove | GradientMove


@dataclass(frozen=True, slots=True)
class Change:
    """The finding's first symptom, and how many of its elements are bad with the fix. `others`
    are the finding's further symptoms. `bounded`: the fix bounds it and does not remove it."""

    symptom: Symptom
    bad_after: int = 0
    others: int = 0
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class Unchanged:
    """So many elements of the gradients, finite in both runs, are bit-identical. `all_of_them`:
    there were no others."""

    elements: int
    all_of_them: bool


@dataclass(frozen=True, slots=True)
class Truth:
    """What the program gives in float64 without any fix: the loss of the failing step and the norm
    of all gradients there, None where these break all the same. `is_met`: the fix gives the same,
    but for rounding; with `rounds` it does so in float64, and not in the program's own dtype.
    `beside`: it breaks in float64 too, and has this for a limit."""

    loss: float
    gradient_norm: float | None
    is_met: bool
    beside: bool = False
    rounds: bool = False


@dataclass(frozen=True, slots=True)
class Effects:
    """What the run with a fix showed beside the run without it."""

    change: Change | None = None
    loss: tuple[float, float] | None = None  # of the failing step: before, after
    gradient_norm: float | None = None  # of all gradients together, where every one is finite
    unchanged: Unchanged | None = None
    moves: tuple[Move, ...] = ()
    remains: Cause | None = None  # another error, which is not this fix's to repair
    truth: Truth | None = None  # where it can be had


@dataclass(frozen=True, slots=True)
class HugeLoss:
    """The loss is far beyond `usual`, the median of the losses beside it: None without any."""

    usual: float | None


@dataclass(frozen=True, slots=True)
class HugeGradient:
    """The norm of all gradients is far beyond `usual`, the largest of the steps before."""

    usual: float


@dataclass(frozen=True, slots=True)
class HugeElements:
    """Elements of the gradient of `name` that were not finite are so many `times` the others."""

    name: str
    times: float


@dataclass(frozen=True, slots=True)
class NothingToLearn:
    """Every gradient is exactly 0, and was not before; or that of the `leaf` alone."""

    leaf: str = ""


@dataclass(frozen=True, slots=True)
class OffTruth:
    """The loss or the gradients are of another size than in float64."""


@dataclass(frozen=True, slots=True)
class NumberDecides:
    """The fix puts a number in the place of an operand, and what the program gives is what that
    number makes it: another one gives `loss`, or another gradient of `leaf`."""

    loss: float
    leaf: str = ""


@dataclass(frozen=True, slots=True)
class Disturbs:
    """The fix stands in for a few elements, and moves others that were finite."""

    move: Move


@dataclass(frozen=True, slots=True)
class Follows:
    """Training does not go on: at `step`, after the failing one, the error comes again, or one of
    too large values, or a finite `loss` or gradient `norm` is far beyond those before."""

    step: int
    cause: Cause | None = None
    loss: float | None = None
    norm: float | None = None


Shortfall = (
    HugeLoss
    | HugeGradient
    | HugeElements
    | NothingToLearn
    | OffTruth
    | NumberDecides
    | Disturbs
    | Follows
)


@dataclass(frozen=True, slots=True)
class CauseRemains:
    """The finding is there with the fix as well."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class CauseAppears:
    """An error that was not there without the fix."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class SymptomRemains:
    """`cause` is what the second run was found to have it from, where that was found."""

    symptom: Symptom
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class SymptomAppears:
    symptom: Symptom


@dataclass(frozen=True, slots=True)
class GradientBreaks:
    """The gradient of `name` is not finite where it was finite without the fix."""

    name: str


@dataclass(frozen=True, slots=True)
class ValuesMove:
    """Of a fix that claims to keep every finite value."""

    move: Move


@dataclass(frozen=True, slots=True)
class ProgramEnds:
    """`how` is the ending's own line: the exception, the exit code, the signal."""

    how: str


@dataclass(frozen=True, slots=True)
class CannotRun:
    """The target cannot be started with the fix; `error` says why."""

    error: str


Objection = (
    CauseRemains
    | CauseAppears
    | SymptomRemains
    | SymptomAppears
    | GradientBreaks
    | ValuesMove
    | ProgramEnds
    | CannotRun
)


class Reason(Enum):
    """Why a fix was not tried, or why trying it told nothing. What `detail` is, in brackets."""

    NOT_ASKED = auto()
    VERIFICATION_OFF = auto()
    NOT_REPEATED = auto()  # this run cannot be made again
    SAVED = auto()  # there is the trace of a run, and no program
    STEP = auto()  # there is one step of a program
    ANOTHER_HOLDS = auto()
    TIME = auto()  # the budget was spent (the seconds)
    INTERRUPTED = auto()  # by Ctrl-C, or asked to end from outside
    KILLED = auto()  # from outside (the signal)
    MEMORY = auto()  # the second run had too little of it (what it raised)
    NOT_REPEATABLE = auto()  # the program itself takes another way each time
    ENDED_EARLY = auto()  # the second run did not come as far as the failing step
    NO_UPDATE = auto()  # of clipping, where no optimizer steps
    SEARCH = auto()  # the time for looking for patches was over (seconds)
    ADVICE = auto()  # the source does not tell what to edit
    NO_PLACE = auto()
    INSTALLED = auto()  # the place lies in an installed package (the file)
    UNREADABLE = auto()  # (why)
    NO_PYTHON = auto()  # the file does not parse (the file)
    ENCODING = auto()  # the file is not UTF-8 (its encoding)
    FAULT = auto()  # gradscope itself failed (its error)
    MACHINE = auto()  # a full disk and the like (what the system said)
    OUTSIDE = auto()  # what the program does outside it is not to do twice
    NOT_THERE = auto()  # a copy of the process could not run the step with it
    RUNS = auto()  # as many as there may be were made (how many)


@dataclass(frozen=True, slots=True)
class Verified:
    effects: Effects


@dataclass(frozen=True, slots=True)
class Holds:
    """The symptom is gone and nothing else broke, but the values are not good to train with."""

    effects: Effects
    but: Shortfall


@dataclass(frozen=True, slots=True)
class Refuted:
    by: Objection


@dataclass(frozen=True, slots=True)
class NotTried:
    """`effect`, of OUTSIDE, is what stands in the way."""

    reason: Reason = Reason.NOT_ASKED
    detail: str = ""
    effect: Effect | None = None


Verdict = Verified | Holds | Refuted | NotTried

UNTRIED = NotTried()
