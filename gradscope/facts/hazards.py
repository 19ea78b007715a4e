"""What came near to breaking in a run that is still healthy. Measured in a preflight alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gradscope.facts.places import Call


class DistanceOf(StrEnum):
    """What the distance to a singular point is that of."""

    ELEMENT = "element"  # one number
    PAIR = "pair"  # two operands' elements at one place, from the origin
    MATRIX = "matrix"  # the smallest singular value of a matrix, relative to the largest
    VALUES = "values"  # two eigenvalues or singular values from each other, relative to the largest


@dataclass(frozen=True, slots=True)
class Approach:
    """An operand that came near a point where its op, or the slope of it, is singular.

    `role` is the operand's name in the op's schema, `value` the element nearest to `point`, and
    `reach` the distance at which a guard would have held it. `near` of `numel` elements (matrices)
    lie within.
    """

    call: Call
    step: int
    role: str
    dtype: str
    point: float
    value: float
    distance: float
    reach: float
    near: int
    numel: int
    measured: DistanceOf = DistanceOf.ELEMENT


@dataclass(frozen=True, slots=True)
class Headroom:
    """A result in half precision near the end of its dtype.

    `largest` is the largest magnitude among its elements, of which `near` of `numel` lie beyond
    the part of the range that is to stay free: above it, or below the smallest normal number
    where `limit` is that one.
    """

    call: Call
    step: int
    dtype: str
    largest: float
    limit: float
    near: int
    numel: int
