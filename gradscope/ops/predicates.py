"""The predicates from which edges are made: conditions on the operands' values at one element."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradscope.ops.dtypes import LIMITS
from gradscope.ops.edges import Holds, Values


def largest(values: Values) -> float:
    """The largest finite number of the dtype that the op computes in; float32's if unsaid."""
    return values.get("dtype.max", LIMITS["float32"].max)


def equals(name: str, *points: float) -> Holds:
    return lambda values: values[name] in points


def below(name: str, bound: float) -> Holds:
    return lambda values: values[name] < bound


def above(name: str, bound: float) -> Holds:
    return lambda values: values[name] > bound


def outside(name: str, low: float, high: float) -> Holds:
    return lambda values: values[name] < low or values[name] > high


def infinite(*names: str) -> Holds:
    """One of the operands is already inf."""
    return lambda values: any(math.isinf(values[name]) for name in names if name in values)


def both(first: Holds, second: Holds) -> Holds:
    return lambda values: first(values) and second(values)


def is_negative_integer(name: str) -> Holds:
    return lambda values: values[name] <= 0 and values[name] == math.floor(values[name])


def overflows(*names: str, by: Callable[..., float]) -> Holds:
    """`by` of these operands, all finite, leaves the dtype: their value, or their slope."""

    def holds(values: Values) -> bool:
        numbers = [values[name] for name in names]
        if not all(math.isfinite(number) for number in numbers):
            return False
        try:
            return abs(by(*numbers)) > largest(values)
        except OverflowError:
            return True
        except (ZeroDivisionError, ValueError):
            return False

    return holds
