"""The distribution of total norms over steps, and the max_norm that follows from it."""

import math
from collections.abc import Sequence

from gradscope.facts import plural
from gradscope.norms.facts import Bound, Distribution

# Median absolute deviations of a normal distribution add up to a standard deviation so.
MAD_TO_SIGMA = 1.4826
SIGMAS = 3.0
NARROW = 1.1
# AutoClip (Seetharaman et al., 2020) clips to the tenth percentile of the norms so far.
AUTOCLIP_PERCENTILE = 10.0
# ZClip (Kumar et al., 2025): exponential averages with alpha 0.97, clipping above z = 2.5.
ZCLIP_ALPHA = 0.97
ZCLIP_Z = 2.5
FEW_STEPS = 10
GIVEN = "given"  # the method of a bound that is the user's own


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks, as numpy does."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Sequence[float]) -> float:
    """A standard deviation that outliers do not move: the scaled median absolute deviation."""
    middle = percentile(values, 50)
    return MAD_TO_SIGMA * percentile([abs(value - middle) for value in values], 50)


def describe(totals: Sequence[float], steps: Sequence[int] = ()) -> Distribution | None:
    """None where no total is finite. `steps` are the numbers of the totals' steps, from 0 on where
    they are not given."""
    finite = [total for total in totals if math.isfinite(total)]
    if not finite:
        return None
    bound = robust_bound(finite)
    numbered = zip(steps or range(len(totals)), totals, strict=True)
    spikes = [(step, total) for step, total in numbered if not total <= bound]
    return Distribution(
        steps=len(totals),
        finite=len(finite),
        median=percentile(finite, 50),
        p90=percentile(finite, 90),
        p95=percentile(finite, 95),
        max=max(finite),
        spikes=tuple(spikes),
    )


def robust_bound(finite: Sequence[float]) -> float:
    """Three robust standard deviations above the median; in a run whose norms hardly differ, a
    tenth above it, so that ordinary steps are left alone."""
    median = percentile(finite, 50)
    return max(median + SIGMAS * spread(finite), NARROW * median)


def zclip(finite: Sequence[float]) -> float:
    """The threshold that ZClip would stand at after these steps."""
    mean, square = finite[0], 0.0
    for value in finite[1:]:
        sigma = math.sqrt(square)
        kept = min(value, mean + ZCLIP_Z * sigma) if sigma else value
        square = ZCLIP_ALPHA * square + (1 - ZCLIP_ALPHA) * (kept - mean) ** 2
        mean = ZCLIP_ALPHA * mean + (1 - ZCLIP_ALPHA) * kept
    return mean + ZCLIP_Z * math.sqrt(square)


def bounds(totals: Sequence[float], given: float | None = None) -> tuple[Bound, ...]:
    """The recommended max_norm first, then what two published methods would give, then the one that
    was given."""
    finite = [total for total in totals if math.isfinite(total) and total > 0]
    if not finite:
        return ()
    few = f"; from {plural(len(finite), 'step')} only" if len(finite) < FEW_STEPS else ""
    robust, autoclip = robust_bound(finite), percentile(finite, AUTOCLIP_PERCENTILE)
    candidates = [
        ("robust", _rounded_up(robust), f"median + {SIGMAS:g} robust deviations{few}"),
        ("AutoClip", autoclip, f"percentile {AUTOCLIP_PERCENTILE:g} of the norms{few}"),
        ("ZClip", zclip(finite), f"moving mean + {ZCLIP_Z:g} deviations{few}"),
    ]
    if given is not None:
        candidates.append((GIVEN, given, "as asked for"))
    return tuple(
        Bound(method, value, sum(total > value for total in totals), len(totals), reason)
        for method, value, reason in candidates
    )


def _rounded_up(value: float) -> float:
    """To two figures, upwards: a bound is nothing to be precise about."""
    digits = math.floor(math.log10(value)) - 1
    unit = 10.0**digits
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.2g}")
