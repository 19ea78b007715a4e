"""Gradients that fade over a run, while what they are to lower rises."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gradscope.facts import Flat, Step, Usage

EARLY = 5  # updates that tell what was usual
LAST = 3  # measured updates in a row: batches differ
# Of what was usual. Of a problem that is solved the gradient fades further, but its loss falls; the
# steps of a rate that decays are shorter, and its gradients are not.
FADED = 1e-2
GONE = 1e-3  # of what was usual: from here on it is an error
SHARE = 0.5  # of the fade, in powers, that the slope of one op has to explain


@dataclass(frozen=True, slots=True)
class Faded:
    """The gradients of `usage` had the norm `usual` at first, have `last` in the end, and little of
    it from the pass `since` on; `losses` are those of the first measured pass and of the last."""

    usage: Usage
    flat: Flat
    usual: float
    last: float
    since: int
    losses: tuple[float, float]


def faded(usage: Usage, steps: Sequence[Step]) -> Faded | None:
    """None where they last, where the loss has fallen with them, and where no op tells why."""
    flat, norms = usage.flat, dict(usage.norms)
    if flat is None or len(norms) < EARLY + LAST:
        return None
    usual = median([*norms.values()][:EARLY])
    small = [step for step, norm in norms.items() if norm <= FADED * usual]
    if not usual or not {*[*norms][-LAST:]} <= {*small}:
        return None
    by_step = {one.index: one.loss for one in steps if one.index in norms}
    losses = [loss for loss in by_step.values() if loss is not None]
    if len(losses) < EARLY + LAST or not min(losses[-LAST:]) > max(losses[:EARLY]):
        return None
    fade = math.log(usual / max(norms[small[0]], math.ulp(0.0)))
    slope = math.log(flat.before / max(flat.slope, math.ulp(0.0))) if flat.before else 0.0
    if slope < SHARE * fade:
        return None
    last = norms[[*norms][-1]]
    return Faded(usage, flat, usual, last, small[0], (losses[0], losses[-1]))
