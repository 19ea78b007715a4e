"""How gradients are lost between the passes that make them and the steps of an optimizer, and how
often its schedule is moved on for each of these."""

from enum import Enum, auto

from gradscope.dataclass import dataclass
from gradscope.facts import Leap, Location, Usage
from gradscope.rules import cutoffs


class Loss(Enum):
    """How the gradients were lost."""

    NEVER_STEPS = auto()
    ELSEWHERE = auto()  # what it holds gets none, and others that nobody moves by them do
    TWICE = auto()  # it holds what another one holds, and what its passes are for nobody does
    SKIPPED = auto()  # by a GradScaler
    NO_RATE = auto()  # the rate is 0 from the start
    ASLEEP = auto()  # it is 0 for the first updates
    IDLE = auto()  # it has become 0, or next to it
    UNMOVED = auto()  # it is above 0, and no step has changed anything
    AT_ZERO = auto()  # the program's own optimizer moves what is not 0 alone
    UPSIDE_DOWN = auto()  # the rate is lowered while what it waits for gets better
    SQUARED = auto()  # the rate is multiplied by itself
    OVERCLIPPED = auto()  # cut down until the steps move nothing
    ROUNDED = auto()
    OVERFLOWN = auto()  # what the optimizer divides by has become inf
    NORM_OVERFLOWN = auto()  # what clipping divides by is
    THROWN_AWAY = auto()  # all passes of an update but the last ones
    SWEPT = auto()  # the passes before one that was for something else
    USED_AGAIN = auto()  # by all updates until the gradients are cleared
    LEFT_OVER = auto()  # the last passes of an epoch
    NO_GROUP = auto()  # what none of its groups fits does
    LEFT_OUT = auto()  # what no optimizer holds gets them beside what one holds


@dataclass(frozen=True, slots=True)
class Lost:
    """`passes` of `of`: what they are depends on how."""

    how: Loss
    usage: Usage
    passes: int
    of: int
    backward: Location | None = None
    others: tuple[str, ...] = ()  # the parameters that get a gradient, and no optimizer holds
    collected: str = ""  # the list that has all of these, where the optimizer is made
    leap: Leap | None = None  # the op that made the gradients so large
    aside: Location | None = None  # the backward with whose gradients they were cleared


def moves_each(usage: Usage) -> int:
    """How often the schedule was moved on for each step, also those that a scaler has left out;
    1 where that is no whole number, but for a cycle that is cut off, and a few."""
    schedule, skipping = usage.schedule, usage.skipping
    moves = schedule.moves if schedule is not None else 0
    asked = max(usage.updates, skipping.calls if skipping is not None else 0)
    times = round(moves / asked) if asked else 0
    is_whole = abs(moves - times * asked) <= max(times - 1, cutoffs.FEW_MOVES * moves)
    return times if times > 1 and is_whole else 1
