"""Whether activations at their bounds keep a model from learning, and what brought them there."""

import math
from collections.abc import Sequence
from enum import Enum, auto
from statistics import fmean

from gradscope.facts import Saturated, Step
from gradscope.rules import cutoffs


class Large(Enum):
    """What makes the numbers large that an activation is given."""

    DATA = auto()
    WEIGHTS = auto()
    RESULTS = auto()  # of other layers


def is_lost(one: Saturated, steps: Sequence[Step]) -> bool:
    """Whether it goes on for long enough, and what the layers behind it learn is not all there is
    to learn."""
    if len(one.steps) < cutoffs.FEWEST or one.gain * one.read < cutoffs.FAR:
        return False
    losses = [at.loss for at in steps if at.loss is not None and math.isfinite(at.loss)]
    quarter = len(losses) // 4 or 1
    first, last = fmean(losses[:quarter] or (0.0,)), fmean(losses[-quarter:] or (0.0,))
    return abs(last) > cutoffs.LEARNT * abs(first)


def blamed(one: Saturated) -> Large:
    """The larger of the two, by far more than either has as a rule."""
    if one.gain >= cutoffs.LARGE_GAIN and one.gain >= one.read:
        return Large.WEIGHTS
    return Large.DATA if one.of_data else Large.RESULTS
