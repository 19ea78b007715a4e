"""How a gradient changes on its way back: whether it grows, or fades, by a steady factor."""

import math

from gradscope.facts import Growth, Leaf, Limits, Magnitudes

# Fewer repeats than this, or one repeat that makes half of the change, is an op and no growth.
FEWEST_REPEATS = 5
STEADY_SHARE = 0.5
CLIPPED = 0.99  # a total norm that an optimizer saw this much smaller was clipped, or unscaled


def explodes(growth: Growth, limits: Limits) -> bool:
    if not growth.total >= limits.gradient_growth:  # nor where one of them is NaN
        return False
    return growth.axis == "fused" or (is_steady(growth) and growth.factor > 1)


def fades(growth: Growth, limits: Limits) -> bool:
    """Shrinks steadily by more than an ordinary deep model does, if need be down to exactly 0."""
    alive = [norm for norm in growth.norms if norm > 0]
    if growth.axis == "fused" or growth.factor >= 1 or not is_steady(growth):
        return False
    return min(growth.norms) / alive[0] <= limits.gradient_fade


def is_steady(growth: Growth) -> bool:
    """Whether the repeats share the change: no single one makes most of it."""
    alive = [norm for norm in growth.norms if 0 < norm < math.inf]
    if len(alive) < FEWEST_REPEATS:
        return False
    change = abs(math.log(alive[-1] / alive[0]))
    largest = max(abs(math.log(growth.low)), abs(math.log(growth.high)))
    return largest <= STEADY_SHARE * change


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
    return any(ratio is not None and ratio < CLIPPED for ratio in ratios)


def clip_bound(earlier: tuple[float, ...]) -> float:
    """The median of the total norms before the explosion; 1.0, the usual choice, without any."""
    healthy = sorted(norm for norm in earlier if 0 < norm < math.inf)
    return float(f"{healthy[len(healthy) // 2]:.2g}") if len(healthy) >= 3 else 1.0
