"""Everything that one run showed; and of the processes of one distributed program, each of which is
watched by itself, what one tells the others, and which of them a report is about."""

from enum import StrEnum

from gradscope.dataclass import dataclass
from gradscope.facts.compared import Identical, Lone, Repeated, Saturated, Scores, Unreached
from gradscope.facts.effects import Effect
from gradscope.facts.events import (
    Approach,
    ArrayFault,
    Broadcast,
    Event,
    Headroom,
    NanRead,
    Overwrite,
    Symptom,
    Unexamined,
    UnseenRead,
)
from gradscope.facts.functions import FunctionCheck, Redraw
from gradscope.facts.magnitudes import UNMEASURED, Magnitudes
from gradscope.facts.places import Location
from gradscope.facts.refusals import AnyRefusal, Raised
from gradscope.facts.usage import LostAverage, UnknownNames

OTHERS = "another rank"  # has ended, and with it the run of this one: the detail of its ending
MOST_SYMPTOMS = 20  # of one rank that the others are told of


class Fate(StrEnum):
    """What became of a rank."""

    BORN = "born"  # it has an error of its own
    BAD = "bad"  # its values are, and where from was not seen
    RECEIVED = "received"  # a collective brought its bad values from another rank
    RAISED = "raised"
    EXITED = "exited"  # by itself, with a code that is not 0
    DIED = "died"  # by a signal
    HUNG = "hung"  # it did not come where the others wait
    CALLED_OFF = "called off"  # by us, since another rank had ended
    CUT_SHORT = "cut short"  # by a limit or Ctrl-C
    HEALTHY = "healthy"
    GONE = "gone"  # what watched it does not answer

    @property
    def is_own(self) -> bool:
        """Whether it came to a bad end by what it did itself."""
        by_itself = (Fate.RAISED, Fate.EXITED, Fate.DIED, Fate.HUNG)
        return self in (Fate.BORN, Fate.BAD, *by_itself)


@dataclass(frozen=True, slots=True)
class Share:
    """What a rank tells the others of one run. `order` counts the ends of all ranks, from 1; `step`
    is that of its trouble, else the passes that it made. `location` is that of its first error,
    else where its program ended; `detail` is that of its ending. `warnings` counts what it found
    that is no error."""

    rank: int
    fate: Fate
    order: int = 0
    step: int = 0
    location: Location | None = None
    rule: str = ""
    detail: str = ""
    symptoms: tuple[Symptom, ...] = ()
    unexamined: Unexamined | None = None
    sends: bool = False  # it has sent a bad value, and had no trouble of it itself
    is_stuck: bool = False  # no step was over for a while
    waits: bool = False  # in a collective, or in a backward pass
    interrupted: bool = False  # by Ctrl-C: nothing more is to run
    hindered: Effect | None = None  # why it could not run again
    warnings: int = 0


@dataclass(frozen=True, slots=True)
class Ranked:
    """The rank that a report is about, of `count`, with its `own` share and those of the others."""

    rank: int
    count: int
    own: Share
    others: tuple[Share, ...] = ()

    @property
    def all(self) -> tuple[Share, ...]:
        return tuple(sorted((self.own, *self.others), key=lambda one: one.rank))


@dataclass(frozen=True, slots=True)
class NotChecked:
    """One thing that nobody looked at. Both parts are clauses in words: `what` names it ("the
    backward of `Scan`"), `why` says what stood in the way ("6.5 million elements; at most 1
    million are checked")."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Step:
    """One backward pass and what followed it until the next. `loss` is the sum of its roots.
    `in_full`: op by op; else it was only watched. `tried`: an optimizer has asked its closure again
    in the same `step()`, at parameters that it may not keep."""

    index: int
    loss: float | None
    seconds: float
    ops: int
    backward_at: Location | None = None
    in_full: bool = True
    tried: bool = False


@dataclass(frozen=True, slots=True)
class Gradient:
    """A leaf's gradient after the backward of the last step, to compare two runs by.

    `norm` is the L2 norm of the finite elements, in float64. `digest` is a hash of all bytes.
    `sample` are the values at the flat positions `i * numel // len(sample)`, at most 1,024.
    """

    name: str
    shape: tuple[int, ...]
    numel: int
    bad: int
    norm: float
    digest: str
    sample: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of an optimizer that was inf or NaN when it stepped: `lr`, `betas[0]`. `step` is
    that of the events of its update."""

    name: str
    value: float
    optimizer: str
    step: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How the traced program ended. `kind`: stopped (by us, `detail` says by what), finished,
    raised, exited, interrupted, died; and in a check unusable (it could not be run at all), hung,
    fault (gradscope itself failed). `detail` is one line, `traceback` the user's frames. `code` of
    a program that a signal ended is minus the signal. `out_of_memory`: what it raised says so.
    `memory_limited`: its memory was, as `detail` says and the traceback does not.
    `device_assert`: so does that a kernel on a GPU found something wrong with its operands.
    `signals`: the names of those that were sent to it, in order.
    `at_limit`: a limit on its steps or its time has ended it, and it might have gone on. `waits`:
    it was in a collective, or in a backward pass, which may wait for one."""

    kind: str
    detail: str = ""
    code: int | None = None
    traceback: str = ""
    location: Location | None = None
    in_a_hurry: bool = False  # somebody asked for the end (Ctrl-C, SIGTERM, SIGHUP)
    signals: tuple[str, ...] = ()
    out_of_memory: bool = False
    memory_limited: bool = False
    device_assert: bool = False
    at_limit: bool = False
    waits: bool = False

    @property
    def gave_up(self) -> bool:
        """Whether the program itself came to a bad end."""
        return self.kind in ("raised", "died") or (self.kind == "exited" and bool(self.code))

    @property
    def is_cut_short(self) -> bool:
        """Whether a limit or Ctrl-C ended the program, and no error that was found in it."""
        return self.at_limit or self.kind == "interrupted"

    @property
    def is_failure(self) -> bool:
        """Whether a run without findings that ended so has failed rather than passed."""
        return self.gave_up or self.kind in ("unusable", "hung", "fault")


class Origin(StrEnum):
    """Where a repeated run begins."""

    SNAPSHOT = "snapshot"  # between two steps of the first run
    IN_PLACE = "in-place"  # before the update, by whoever drives the loop
    START = "start"


class Hurdle(StrEnum):
    """Why there is no snapshot of a run that was long enough for one."""

    PROCESSES = "processes"  # it starts some of its own, besides the workers of a DataLoader
    SHARED = "shared"  # pipes, sockets, memory, data bases or a GPU, which copies would share
    THREADS = "threads"  # which no copy has
    MEMORY = "memory"  # there is no room


@dataclass(frozen=True, slots=True)
class Replay:
    """How a run was repeated: from the backward pass `step` on, `steps` of them. `identical`:
    whether the losses before the failing step came out as in the first run, bit by bit; None where
    there is none to compare. `hurdle`: why it begins at the start."""

    origin: Origin
    step: int
    steps: int
    identical: bool | None
    hurdle: Hurdle | None = None


@dataclass(frozen=True, slots=True)
class Compiling:
    """The program compiles code, by `torch.compile` at `location`. `left_out`: that ran uncompiled
    where each op was looked at."""

    location: Location | None
    left_out: bool


@dataclass(frozen=True, slots=True)
class Environment:
    torch: str = ""
    python: str = ""
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that one run showed. Losses and norms are floats, NaN and inf included; shapes are
    tuples of ints; dtypes and devices are called by their names. No tensor is kept."""

    target: str
    events: tuple[Event, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    steps: tuple[Step, ...] = ()
    unseen: int = 0  # steps that it made after these, before it died without a word
    updates: int | None = None  # by optimizers, between steps; None in a program without one
    ending: Ending = Ending("finished")
    environment: Environment = Environment()
    ops: int = 0
    notes: tuple[str, ...] = ()  # what could not be observed, one sentence each
    not_checked: tuple[NotChecked, ...] = ()  # what was left out, though it could be observed
    gradients: tuple[Gradient, ...] = ()  # of the last step, in the order of the leaves' first use
    magnitudes: Magnitudes = UNMEASURED
    functions: tuple[FunctionCheck, ...] = ()  # every custom Function that was looked at
    overwrites: tuple[Overwrite, ...] = ()  # of saved values, where autograd did not see it
    nan_reads: tuple[NanRead, ...] = ()  # of what no gradient depends on
    unseen_read: UnseenRead | None = None  # the first where only watched
    hidden: tuple[Event, ...] = ()  # births on the way to a loss that a mask hid, and no symptom
    approaches: tuple[Approach, ...] = ()  # of operands to singular points, nearest first
    headroom: tuple[Headroom, ...] = ()  # half precision near its ends, worst first
    broadcasts: tuple[Broadcast, ...] = ()  # of whole batches against each other
    redraws: tuple[Redraw, ...] = ()  # of parts that backward runs again
    scores: tuple[Scores, ...] = ()  # that losses were given
    unreached: tuple[Unreached, ...] = ()
    saturated: tuple[Saturated, ...] = ()
    identical: tuple[Identical, ...] = ()
    lone: tuple[Lone, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    array_faults: tuple[ArrayFault, ...] = ()
    lost_averages: tuple[LostAverage, ...] = ()
    unknown_names: tuple[UnknownNames, ...] = ()  # that `functional_call` was given
    settings: tuple[Setting, ...] = ()  # of optimizers, that were not finite
    elsewhere: tuple[str, ...] = ()  # names of other threads that ran backward: not observed
    processes: tuple[str, ...] = ()  # names of those that the program started: not observed
    effects: tuple[Effect, ...] = ()  # what it did outside; of a repeated run, what it may not do
    hurdle: Hurdle | None = None
    replay: Replay | None = None  # of a repeated run
    sent: Symptom | None = None  # the last bad value that a collective took to other ranks
    others: tuple[Share, ...] = ()  # of a repeated run: other ranks that came to a bad end
    unexamined: Unexamined | None = None  # where its trouble began, if only watched there
    raised: Raised | None = None  # the op that ended the program, where its operands tell why
    surged: int | None = None  # the first step whose gradient is absurd beside those before it
    compiled: Compiling | None = None  # by torch.compile
    refusal: AnyRefusal | None = None  # what autograd raised on, and the program ended by
    rounded_otherwise: tuple[str, ...] = ()  # ops of which torch takes another formula under a mode
    file: str = ""  # that was asked to run

    @property
    def inspected(self) -> int:
        """The number of steps that were looked at in full."""
        return sum(step.in_full for step in self.steps)

    def event(self, id: int) -> Event | None:
        return next((event for event in self.events if event.id == id), None)
