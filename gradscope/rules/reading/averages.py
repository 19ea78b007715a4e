"""Which steps use the sum of the gradients of several passes as if it were their mean, or average
them twice."""

import math
from collections.abc import Sequence

from gradscope.facts import Magnitudes, Step, Usage
from gradscope.facts import requests as ask
from gradscope.rules import cutoffs
from gradscope.rules.reading.lost import backward_of


def undivided(usage: Usage, magnitudes: Magnitudes, steps: Sequence[Step]) -> ask.DivideLoss | None:
    """How to average the passes of each step, where all of them come from one place, go to the same
    parameters, and are of losses that are a mean as it is; None where they are averaged, or nobody
    knows."""
    lengths = set(usage.cycles)
    passes = max(lengths, default=0)
    if lengths != {passes} or passes < 2 or len(usage.cycles) < cutoffs.FEWEST_UPDATES:
        return None
    if usage.handled or usage.discards or not all(one == 1.0 for one in usage.factors):
        return None
    place = backward_of(usage, steps)
    if place is None or not usage.factors or not _go_everywhere(usage, magnitudes):
        return None
    return ask.DivideLoss(place, passes)


def _go_everywhere(usage: Usage, magnitudes: Magnitudes) -> bool:
    """Whether each pass, as far as was measured, gave all that has gradients one: the losses of
    several tasks have heads of their own."""
    own = [leaf.norms for leaf in magnitudes.leaves if leaf.name in usage.held]
    passes = [[norms[step] for norms in own if step < len(norms)] for step in usage.used]
    return all(None not in norms for norms in passes if any(norms))


def averaged_again(usage: Usage) -> bool:
    """Whether the program, too, divides by the number of ranks over which the gradients have been
    averaged: the loss, or the gradients. A number that stands in the source is of the loss, as in
    `0.5 * mse`."""
    passes, factors = set(usage.cycles), set(usage.factors)
    if usage.ranks < 2 or len(passes) != 1 or len(factors) != 1:
        return False
    factor = factors.pop()
    whole = usage.scaled * (1.0 if factor is None else factor / usage.written * passes.pop())
    return math.isclose(whole * usage.ranks, 1.0, rel_tol=1e-5)
