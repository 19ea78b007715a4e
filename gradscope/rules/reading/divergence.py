"""Whether training diverges, and what of its updates tells why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradscope.facts import Leaf, Location, Magnitudes, Root, Summed, Update
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading.overshoots import BLIND_TO_SCALE
from gradscope.rules.reading.rises import Rise, largest_stable_lr

# One leap has to be by so many times more than rises in a row: noise between batches leaps too.
LEAP = 100.0
# In a run that stays finite the evidence has to be stronger: a loss may rise for a good reason.
FINITE_RISES = 5
FINITE = 10.0
# If training is the reason, the weights have changed by that much, all together.
MOVED = 1.1
FEWEST_STALE = 5  # updates in a row whose gradients had piled up; fewer may be meant


def is_divergence(rise: Rise, roots: tuple[Root, ...], magnitudes: Magnitudes) -> bool:
    """Whether losses that grew are the fault of the steps, and not of an op or of the data."""
    limit = magnitudes.limits.loss_growth
    if not roots:
        large = rise.rises >= FINITE_RISES and rise.total >= FINITE * limit
        return large and not rise.falls and _have_moved(magnitudes.leaves)
    # An overflow in an op that grows slowly is the loop's own growth arriving there. One in `exp`
    # or a division is a cause of its own, whatever came before.
    if any(not has(root.event.op, Trait.GROWS_SLOWLY) for root in roots):
        return False
    return rise.total >= (limit if rise.rises > 1 else LEAP * limit)


def never_cleared(magnitudes: Magnitudes) -> Iterator[Update]:
    """The last of the updates in one place that, but for the first, each used the gradients of
    the one before as well."""
    places: dict[Location | None, list[Update]] = {}
    for update in magnitudes.updates:
        places.setdefault(update.location, []).append(update)
    for updates in places.values():
        stale = [update.stale for update in updates[1:] if update.stale is not None]
        if len(stale) >= FEWEST_STALE and all(stale):
            yield updates[-1]


def blamed_sum(total: Summed | None, rise: Rise, update: Update, lr: float) -> Summed | None:
    """The sum that the loss is, where the mean would have kept the steps short enough."""
    if total is None or update.optimizer in BLIND_TO_SCALE:
        return None
    return total if lr / total.terms < largest_stable_lr(rise, lr) else None


def _have_moved(leaves: Sequence[Leaf]) -> bool:
    """Whether training is what the loss grew by: of harder data the weights know nothing."""
    trained = [leaf for leaf in leaves if leaf.trained]
    start = math.hypot(*(leaf.start for leaf in trained))
    now = math.hypot(*(leaf.weight for leaf in trained))
    return not trained or not start / MOVED <= now <= start * MOVED
