"""The values of two runs side by side: which losses and gradients differ, and by how much."""

import math
from collections.abc import Iterator

from gradscope.facts import ROUNDING, Gradient, GradientMove, LossMove, Move, Trace, Unchanged

BETWEEN = 5e-324  # gradients that differ, but not at the elements that were sampled


def learns(trace: Trace) -> bool:
    """Whether any gradient is not exactly 0; so also where none was looked at."""
    return not trace.gradients or any(one.norm or one.bad for one in trace.gradients)


def total_norm(gradients: tuple[Gradient, ...]) -> float:
    return math.hypot(*(gradient.norm for gradient in gradients))


def loss_of(trace: Trace, step: int) -> float | None:
    return next((one.loss for one in trace.steps if one.index == step), None)


def has_finite_loss(trace: Trace, step: int) -> bool:
    loss = loss_of(trace, step)
    return loss is not None and math.isfinite(loss)


def unchanged(before: Trace, after: Trace) -> Unchanged | None:
    """The elements of the gradients that were finite before, where all are bit-identical now."""
    both = list(pairs(before, after))
    finite = sum(first.numel - first.bad for first, _ in both)
    if not finite or any(distance(first, second) for first, second in both):
        return None
    return Unchanged(finite, not any(first.bad for first, _ in both))


def pairs(before: Trace, after: Trace) -> Iterator[tuple[Gradient, Gradient]]:
    later = {gradient.name: gradient for gradient in after.gradients}
    for first in before.gradients:
        second = later.get(first.name)
        if second is not None and second.shape == first.shape:
            yield first, second


def breaks(first: Gradient, second: Gradient) -> bool:
    """Whether elements that were finite are not any more."""
    samples = zip(first.sample, second.sample, strict=False)
    lost = any(math.isfinite(old) and not math.isfinite(new) for old, new in samples)
    return lost or second.bad > first.bad


def distance(first: Gradient, second: Gradient) -> float:
    """The largest change of an element that was finite before, relative to the largest of them."""
    if first.digest == second.digest:
        return 0.0
    scale = max((abs(value) for value in first.sample if math.isfinite(value)), default=0.0)
    changes = (
        abs(new - old)
        for old, new in zip(first.sample, second.sample, strict=False)
        if math.isfinite(old) and old != new
    )
    worst = max(changes, default=0.0)
    if worst == 0.0 and not first.bad:
        return BETWEEN
    return worst / scale if scale else worst


def moved_loss(before: Trace, after: Trace, step: int) -> LossMove | None:
    """The first step whose finite loss is not bit-identical, and by how much it differs."""
    for one in before.steps[: step + 1]:
        old, new = one.loss, loss_of(after, one.index)
        if old is not None and new is not None and math.isfinite(old) and old != new:
            return LossMove(one.index, abs(new - old))
    return None


def is_rounding(before: Trace, after: Trace, step: int) -> bool:
    """Whether only gradients moved, and those no more than a sum does whose order has changed:
    where a gradient is differentiated again, a guard changes which terms are added first."""
    moves = [distance(a, b) for a, b in pairs(before, after)]
    known = BETWEEN not in moves
    return known and max(moves, default=0.0) <= ROUNDING and not moved_loss(before, after, step)


def moved(before: Trace, after: Trace, step: int) -> tuple[Move, ...]:
    """The finite values that are not bit-identical."""
    found: list[Move] = []
    loss = moved_loss(before, after, step)
    if loss is not None:
        found.append(loss)
    distances = [(distance(a, b), a.name) for a, b in pairs(before, after)]
    worst, name = max(distances, default=(0.0, ""))
    if worst:
        found.append(GradientMove(name, None if worst == BETWEEN else worst))
    return tuple(found)


def repeats(first: Trace, second: Trace, steps: range) -> bool:
    """Whether a second run was the same run there: the same losses, bad ones included."""
    later = {one.index: one for one in second.steps}
    return all(
        one.index in later and _identical(one.loss, later[one.index].loss)
        for one in first.steps
        if one.index in steps
    )


def _identical(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return first == second or (math.isnan(first) and math.isnan(second))
