"""Which steep slopes are no property of the program's numbers, and where to keep off them."""

import math

from gradscope.facts import Leap

# From here on: a root kept at 1e-12 has slope 5e5; what batches, units and depth do to one op
# stays below a thousand, and an order of magnitude is left between.
HUGE = 1e4
# The same where rounding alone could put the operand on the singular point: the slope of acos at
# the last float32 below 1 is 2,900.
HUGE_IN_REACH = 500.0
ROOM = 10.0  # times the distance of the steep elements from the singular point
SHARE = 1e-2  # of the distance of the others, from where on a pole is left alone


def is_huge(leap: Leap) -> bool:
    """Whether the op multiplied by more than its other elements, its history and the units of what
    it read explain, and whether that came to a leaf."""
    times = min(leap.carried, leap.slope / (leap.others or 1.0))
    if leap.in_reach and leap.others is not None and times >= HUGE:
        return True
    # What is no larger than the numbers that it multiplies with comes of those.
    times = min(times, leap.slope / max(1.0, leap.explained))
    if leap.others is not None:
        huge = HUGE_IN_REACH if leap.in_reach else HUGE
        return times >= huge and leap.stretch is not None and leap.stretch >= huge
    is_new = leap.earlier is not None and leap.slope >= HUGE * leap.earlier
    is_stretched = leap.leaf_stretch is None or leap.leaf_stretch >= HUGE
    return times >= HUGE and is_stretched and (leap.in_reach or is_new)


def bound_of(leap: Leap) -> tuple[float | None, float | None]:
    """A distance from the singular point that the steep elements are within and the others are
    not: just beyond the former, and just short of the latter. None where it was not measured."""
    if leap.near is None or not 0 < leap.near < math.inf:
        return None, None
    near = 10.0 ** math.ceil(math.log10(ROOM * leap.near) - 1e-3)
    if leap.far is None:
        return near, None
    far = 10.0 ** math.floor(math.log10(SHARE * leap.far)) if leap.far > 0 else near
    return (near, far) if near <= far else (None, None)
