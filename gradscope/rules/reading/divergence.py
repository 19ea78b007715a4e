"""Whether training diverges, and what of its updates tells why."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from gradscope.facts import Leaf, Location, Magnitudes, Root, Step, Summed, Update
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading.lost import BLIND_TO_SCALE, undivided
from gradscope.rules.reading.rises import Rise, largest_stable_lr

# One leap has to be by so many times more than rises in a row: noise between batches leaps too.
LEAP = 100.0
# In a run that stays finite the evidence has to be stronger: a loss may rise for a good reason.
FINITE_RISES = 5
FINITE = 10.0
# If training is the reason, the weights have changed by that much, all together; where they have
# grown tenfold, a tenth of the usual growth of the loss is proof enough.
MOVED = 1.1
GROWN = 10.0
FEWEST_STALE = 5  # updates in a row whose gradients had piled up; fewer may be meant
# Both are the most that training recipes use: of a velocity, and of what one step takes away.
USUAL_MOMENTUM = 0.9
USUAL_DECAY = 0.01
# `w - lr * decay * w` is `w` with the other sign and larger from here on.
TURNS_OVER = 2.0
PASSES = 4  # of backward an update, at least: a loss of two or three terms is no mean
RAISED = 2.0  # times the first learning rate: a schedule has done that, and not by rounding


def is_divergence(
    rise: Rise, roots: tuple[Root, ...], magnitudes: Magnitudes, limit: float
) -> bool:
    """Whether losses that grew, by `limit` at least, are the fault of the steps, and not of an op
    or of the data."""
    if not roots:
        moved = _growth_of_weights(magnitudes.leaves)
        least = limit / FINITE if moved >= GROWN else FINITE * limit
        large = rise.rises >= FINITE_RISES and rise.total >= least
        # Of harder data the weights know nothing.
        return large and not rise.falls and not 1 / MOVED <= moved <= MOVED
    # An overflow in an op that grows slowly is the loop's own growth arriving there. One in `exp`
    # or a division is a cause of its own, whatever came before.
    if any(not has(root.event.op, Trait.GROWS_SLOWLY) for root in roots):
        return False
    return rise.total >= (limit if rise.rises > 1 else LEAP * limit)


def by_place(updates: Iterable[Update]) -> Iterable[list[Update]]:
    """The updates of each place in the source, in their order."""
    places: dict[Location | None, list[Update]] = defaultdict(list)
    for update in updates:
        places[update.location].append(update)
    return places.values()


def never_cleared(magnitudes: Magnitudes) -> Iterator[list[Update]]:
    """The updates in one place that, but for the first, each used the gradients of the one before
    as well, for each such place."""
    for updates in by_place(magnitudes.updates):
        stale = [update.stale for update in updates[1:] if update.stale is not None]
        if len(stale) >= FEWEST_STALE and all(stale):
            yield updates


class Setting(Enum):
    """What an optimizer was told that makes its steps overshoot."""

    MOMENTUM = auto()
    DECAY = auto()
    BELOW_ZERO = auto()  # the learning rate
    RAISED = auto()  # the learning rate, by its schedule
    ASCENT = auto()
    ACCUMULATED = auto()  # gradients of many passes, whose sum is used as if it were their mean
    UNBOUNDED = auto()  # the loss, from below


@dataclass(frozen=True, slots=True)
class Overshoot:
    """Why each step is too long, the update that shows it, and what mends it: None where advice
    alone does."""

    setting: Setting
    update: Update
    request: ask.Request | None = None
    passes: int = 0


def overshoot(magnitudes: Magnitudes, rise: Rise, steps: Sequence[Step]) -> Overshoot | None:
    """The setting that explains the growth by itself; None where it takes the loss to tell."""
    updates = magnitudes.updates
    first, last = updates[0], updates[-1]
    rate, decay = last.lr or 0.0, last.weight_decay
    at_rise = next((one for one in updates if one.step >= rise.first), last)
    low, high = first.lr or 0.0, at_rise.lr or 0.0
    if last.momentum >= 1:
        request = ask.SetOption(last, "momentum", last.momentum, USUAL_MOMENTUM)
        return Overshoot(Setting.MOMENTUM, last, request)
    if rate * decay > TURNS_OVER:
        request = ask.SetOption(last, "weight_decay", decay, USUAL_DECAY)
        return Overshoot(Setting.DECAY, last, request)
    if rate < 0:
        return Overshoot(Setting.BELOW_ZERO, last, ask.BoundSchedule(last))
    if first.optimizer and high > RAISED * low > 0:
        return Overshoot(Setting.RAISED, at_rise, ask.BoundSchedule(at_rise, high=high / 2))
    if last.ascends is not None:
        return Overshoot(Setting.ASCENT, last, ask.Descend(last))
    if (divided := _accumulated(magnitudes, steps)) is not None:
        return Overshoot(Setting.ACCUMULATED, last, divided, divided.passes)
    return Overshoot(Setting.UNBOUNDED, last) if rise.falls else None


def _accumulated(magnitudes: Magnitudes, steps: Sequence[Step]) -> ask.DivideLoss | None:
    last = magnitudes.updates[-1]
    if last.lr is None or not last.optimizer or last.optimizer in BLIND_TO_SCALE:
        return None
    own = (usage for usage in magnitudes.usages if usage.steps_at == last.location)
    found = next(filter(None, (undivided(one, magnitudes, steps) for one in own)), None)
    return found if found is not None and found.passes >= PASSES else None


def blamed_sum(total: Summed | None, rise: Rise, update: Update) -> Summed | None:
    """The sum that the loss is, where the mean would have kept the steps short enough."""
    if total is None or update.lr is None or update.optimizer in BLIND_TO_SCALE:
        return None
    return total if update.lr / total.terms < largest_stable_lr(rise, update.lr) else None


def _growth_of_weights(leaves: Sequence[Leaf]) -> float:
    """From the first step on, those that are trained together; inf where none is known."""
    trained = [leaf for leaf in leaves if leaf.trained]
    start = math.hypot(*(leaf.start for leaf in trained))
    return math.hypot(*(leaf.weight for leaf in trained)) / start if start else math.inf
