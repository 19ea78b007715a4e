"""How a gradient changes on its way back, whether it grows, or fades, by a steady factor; which
steep slopes are no property of the program's numbers, and where to keep off them; and gradients
that fade over a run, while what they are to lower rises."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from gradscope.dataclass import dataclass
from gradscope.facts import (
    Flat,
    Growth,
    Leaf,
    Leap,
    Limits,
    Magnitudes,
    Oversized,
    Steep,
    Step,
    Usage,
)
from gradscope.ops.traits import Trait, has
from gradscope.rules import cutoffs


def explodes(growth: Growth, limits: Limits) -> bool:
    values = growth.activations
    both = values[0] / values[-1] if values and _is_steep(growth) else 1.0
    if not growth.total * both >= limits.gradient_growth:  # nor where one of them is NaN
        return False
    return growth.axis == "fused" or (is_steady(growth) and growth.factor > 1)


def is_made_up_for(growth: Growth, magnitudes: Magnitudes, limits: Limits) -> bool:
    """Whether the values grew forwards as the gradient grows backwards, as in probabilities that
    are normalised at the end: a weight gets the product of both. Where the program itself explodes
    in both directions, it is the total norm that is large beside the weights."""
    values, totals = growth.activations, magnitudes.totals()
    if not values or not 0 < values[0] < math.inf or growth.step >= len(totals):
        return False
    grows = growth.total * values[-1] / values[0]
    return grows < limits.gradient_growth and totals[growth.step] <= math.hypot(
        *(leaf.weight for leaf in magnitudes.leaves)
    )


def fades(growth: Growth, limits: Limits) -> bool:
    """Shrinks steadily by more than an ordinary deep model does, if need be down to exactly 0."""
    alive = [norm for norm in growth.norms if norm > 0]
    if growth.axis == "fused" or growth.factor >= 1 or not is_steady(growth):
        return False
    return min(growth.norms) / alive[0] <= limits.gradient_fade


def is_steady(growth: Growth) -> bool:
    """Whether the repeats share the change: no single one makes most of it."""
    alive = [norm for norm in growth.norms if 0 < norm < math.inf]
    if len(alive) < cutoffs.FEWEST_REPEATS and not _is_steep(growth):
        return False
    change = abs(math.log(alive[-1] / alive[0]))
    largest = max(abs(math.log(growth.low)), abs(math.log(growth.high)))
    return largest <= cutoffs.STEADY_SHARE * change


def _is_steep(growth: Growth) -> bool:
    """Whether each repeat multiplies the gradient backwards and the values forwards, so that a
    weight gets the product of both."""
    values = growth.activations
    factors = [before / after for before, after in pairwise(values) if after]
    is_whole = len(factors) == len(values) - 1 and all(map(math.isfinite, values))
    return bool(factors) and is_whole and min(growth.low, *factors) >= cutoffs.STEEP


def starved_leaves(magnitudes: Magnitudes, step: int, limits: Limits) -> list[Leaf]:
    """Weight matrices whose gradient is both tiny and a tiny part of the largest one. Vectors do
    not count: a bias before a normalisation has no gradient by construction."""
    weights = [
        leaf
        for leaf in magnitudes.leaves
        if len(leaf.shape) > 1 and step < len(leaf.norms) and leaf.norms[step] is not None
    ]
    largest = max((rms(leaf, step) for leaf in weights), default=0.0)
    limit = min(limits.gradient_rms, limits.gradient_share * largest)
    return [leaf for leaf in weights if rms(leaf, step) < limit]


def rms(leaf: Leaf, step: int) -> float:
    """Of an element of the gradient at a step."""
    return (leaf.norms[step] or 0.0) / math.sqrt(leaf.numel)


def facts_of(growth: Growth) -> dict[str, object]:
    """What was measured of it, as the JSON contract names it."""
    return {
        "axis": growth.axis,
        "factor": growth.factor,
        "range": [growth.low, growth.high],
        "norms": list(growth.norms),
    }


def is_clipped(magnitudes: Magnitudes) -> bool:
    """Whether an optimizer saw smaller gradients than backward left."""
    ratios = (update.clipped for update in magnitudes.updates)
    return any(ratio is not None and ratio < cutoffs.CLIPPED for ratio in ratios)


def clip_bound(earlier: tuple[float, ...]) -> float:
    """The median of the total norms before the explosion; 1.0, the usual choice, without any."""
    healthy = sorted(norm for norm in earlier if 0 < norm < math.inf)
    return float(f"{healthy[len(healthy) // 2]:.2g}") if len(healthy) >= 3 else 1.0


def is_huge(leap: Leap) -> bool:
    """Whether the op multiplied by more than its other elements, its history and the units of what
    it read explain, and whether that came to a leaf."""
    steep = leap.steep
    times = _times(leap)
    if steep.in_reach and steep.others is not None and times >= cutoffs.HUGE:
        return True
    # What is no larger than the numbers that it multiplies with comes of those.
    times = min(times, steep.slope / max(1.0, leap.explained))
    if steep.others is not None:
        huge = cutoffs.HUGE_IN_REACH if steep.in_reach else cutoffs.HUGE
        return times >= huge and leap.stretch is not None and leap.stretch >= huge
    is_new = leap.earlier is not None and steep.slope >= cutoffs.HUGE * leap.earlier
    is_stretched = leap.leaf_stretch is None or leap.leaf_stretch >= cutoffs.HUGE
    return times >= cutoffs.HUGE and is_stretched and (steep.in_reach or is_new)


def crosses_pole(leap: Leap, steps: Sequence[Step]) -> bool:
    """Whether a divisor that lies on both sides of 0, or went over to the other one, has come so
    near to it that the loss leapt, as it never did before."""
    operand, at = leap.steep.operand, leap.step
    if operand is None or not has(leap.call.op, Trait.DIVIDES):
        return False
    if operand.min is None or operand.max is None:
        return False
    is_through = leap.crossed or operand.min < 0 < operand.max
    return is_through and _times(leap) >= cutoffs.HUGE_AT_POLE and _leapt(at, steps)


def is_near_pole(leap: Leap, steps: Sequence[Step]) -> bool:
    """Whether a divisor of which some elements lie by far nearer to 0 than the others has made the
    loss leap, as it never did before."""
    near, far = leap.steep.near, leap.steep.far
    if near is None or far is None or not has(leap.call.op, Trait.DIVIDES):
        return False
    is_apart = cutoffs.HUGE * near <= far and _times(leap) >= cutoffs.HUGE
    return is_apart and _leapt(leap.step, steps)


def _leapt(at: int, steps: Sequence[Step]) -> bool:
    """Whether the loss of a step is far beyond all before it, which were more than a few."""
    before, loss = losses_until(at, steps)
    return len(before) >= cutoffs.FEWEST and loss >= cutoffs.LEAP * max(before)


def losses_until(at: int, steps: Sequence[Step]) -> tuple[list[float], float]:
    """The sizes of the finite losses before a step, and of the one of the step; 0 without one."""
    losses = {one.index: abs(one.loss) for one in steps if one.loss is not None}
    before = [loss for index, loss in losses.items() if index < at and math.isfinite(loss)]
    return before, losses.get(at, 0.0)


def _times(leap: Leap) -> float:
    """By how much more the op multiplied than its other elements, as far as that came to a leaf."""
    return min(leap.carried, leap.steep.slope / (leap.steep.others or 1.0))


def bound_of(steep: Steep) -> tuple[float | None, float | None]:
    """A distance from the singular point that the steep elements are within and the others are
    not: just beyond the former, and just short of the latter. None where it was not measured."""
    if steep.near is None or not 0 < steep.near < math.inf:
        return None, None
    near = 10.0 ** math.ceil(math.log10(cutoffs.ROOM * steep.near) - 1e-3)
    if steep.far is None:
        return near, None
    far = 10.0 ** math.floor(math.log10(cutoffs.LEFT_ALONE * steep.far)) if steep.far > 0 else near
    return (near, far) if near <= far else (None, None)


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
    if flat is None or len(norms) < cutoffs.EARLY + cutoffs.LAST:
        return None
    usual = median([*norms.values()][: cutoffs.EARLY])
    small = [step for step, norm in norms.items() if norm <= cutoffs.FADED * usual]
    if not usual or not {*[*norms][-cutoffs.LAST :]} <= {*small}:
        return None
    by_step = {one.index: one.loss for one in steps if one.index in norms}
    losses = [loss for loss in by_step.values() if loss is not None]
    first, end = losses[: cutoffs.EARLY], losses[-cutoffs.LAST :]
    if len(losses) < cutoffs.EARLY + cutoffs.LAST or not min(end) > max(first):
        return None
    fade = math.log(usual / max(norms[small[0]], math.ulp(0.0)))
    slope = math.log(flat.before / max(flat.slope, math.ulp(0.0))) if flat.before else 0.0
    if slope < cutoffs.EXPLAINED * fade:
        return None
    last = norms[[*norms][-1]]
    return Faded(usage, flat, usual, last, small[0], (losses[0], losses[-1]))


def outlying(leaps: Sequence[Leap], steps: Sequence[Step]) -> Leap | None:
    """The first op of a step that reads far larger numbers than in any before it, where the loss
    leaps with them: no op before it has made them."""
    at = min((one.step for one in leaps), default=0)
    own = (one for one in leaps if one.step == at)
    first = min(own, key=lambda one: one.call.seq or 0, default=None)
    if first is None or not first.steep.own or not first.earlier or not _leapt(at, steps):
        return None
    return first if first.explained >= cutoffs.HUGE * first.earlier else None


def is_oversized(one: Oversized, steps: Sequence[Step]) -> bool:
    """Whether what a loss reads at first is far beyond what it compares that with, since products
    in a row have made it larger; not where that comes down by itself in the first few steps."""
    growing = [math.log(gain.factor) for gain in one.growing if gain.factor >= cutoffs.GROWS]
    if one.ratio < (cutoffs.WIDE if one.classes else cutoffs.OVERSIZED):
        return False
    if one.total < cutoffs.OVERSIZED or len(growing) < cutoffs.FEWEST_PRODUCTS:
        return False
    first = range(one.step, one.step + cutoffs.SETTLES)
    settles = any(times <= cutoffs.USUAL for times in _times_of_guess(one, steps, first))
    return max(growing) <= cutoffs.LARGEST_SHARE * math.log(one.total) and not settles


def stays_oversized(one: Oversized, steps: Sequence[Step]) -> bool:
    """Whether the loss has never come near to that of a guess."""
    end = max((step.index for step in steps), default=0) + 1
    return all(times > cutoffs.LEFT for times in _times_of_guess(one, steps, range(end)))


def _times_of_guess(one: Oversized, steps: Sequence[Step], among: range) -> Iterator[float]:
    """How many times the loss of a guess some losses are: the first one tells that."""
    losses = {step.index: abs(step.loss) for step in steps if step.loss is not None}
    if guess := losses.get(one.step, 0.0) / one.ratio**one.power:
        yield from (loss / guess for index, loss in losses.items() if index in among)
