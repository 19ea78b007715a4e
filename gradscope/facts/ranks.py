"""The processes of one distributed program, each of which is watched by itself: what one of them
tells the others, and which of them a report is about."""

from dataclasses import dataclass
from enum import StrEnum

from gradscope.facts.effects import Effect
from gradscope.facts.places import Location
from gradscope.facts.symptoms import Symptom, Unexamined

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
    else where its program ended; `detail` is that of its ending."""

    rank: int
    fate: Fate
    order: int = 0
    step: int = 0
    location: Location | None = None
    rule: str = ""
    detail: str = ""
    symptoms: tuple[Symptom, ...] = ()
    unexamined: Unexamined | None = None
    is_stuck: bool = False  # no step was over for a while
    waits: bool = False  # in a collective, or in a backward pass
    interrupted: bool = False  # by Ctrl-C: nothing more is to run
    hindered: Effect | None = None  # why it could not run again


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
