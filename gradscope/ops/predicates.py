"""The predicates from which edges are made: conditions on the operands' values at one element."""

import math
from collections.abc import Callable

from gradscope.dataclass import dataclass
from gradscope.ops.dtypes import FINFO
from gradscope.ops.edges import Holds, Values


def largest(values: Values) -> float:
    """The largest finite number of the dtype that the op computes in; float32's if unsaid."""
    return values.get("dtype.max", FINFO["float32"].max)


@dataclass(frozen=True, slots=True)
class At:
    """One operand is at one of some points."""

    name: str
    points: tuple[float, ...]

    def __call__(self, values: Values) -> bool:
        return values[self.name] in self.points


@dataclass(frozen=True, slots=True)
class Both:
    first: Holds
    second: Holds

    def __call__(self, values: Values) -> bool:
        return self.first(values) and self.second(values)


def equals(name: str, *points: float) -> At:
    return At(name, points)


def points_of(holds: Holds, name: str) -> tuple[float, ...]:
    """The points of an operand at which a condition can hold; none where it holds elsewhere."""
    match holds:
        case At():
            return holds.points if holds.name == name else ()
        case Both():
            return points_of(holds.first, name) or points_of(holds.second, name)
    return ()


def below(name: str, bound: float) -> Holds:
    return lambda values: values[name] < bound


def above(name: str, bound: float) -> Holds:
    return lambda values: values[name] > bound


def outside(name: str, low: float, high: float) -> Holds:
    return lambda values: values[name] < low or values[name] > high


def infinite(*names: str) -> Holds:
    """One of the operands is already inf."""
    return lambda values: any(math.isinf(values[name]) for name in names if name in values)


def both(first: Holds, second: Holds) -> Both:
    return Both(first, second)


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


def magnitude(values: Values, name: str) -> float:
    """The largest finite |element| of an operand; of the one element where no more was measured."""
    if f"{name}.min" in values:
        return max(abs(values[f"{name}.min"]), abs(values[f"{name}.max"]))
    return abs(values[name])


def is_finite(values: Values, name: str) -> bool:
    """All of an operand is finite. True of an operand that was not given (an optional bias)."""
    counts = (values.get(f"{name}.{kind}", 0.0) for kind in ("nan", "posinf", "neginf"))
    return not any(counts) and math.isfinite(values.get(name, 0.0))


def has_infinity(name: str) -> Holds:
    def holds(values: Values) -> bool:
        if math.isinf(values.get(name, 0.0)):
            return True
        return values.get(f"{name}.posinf", 0.0) + values.get(f"{name}.neginf", 0.0) > 0

    return holds


def broke(*names: str) -> Holds:
    """The result is not finite although all of these operands are.

    For ops that mix elements there is no telling from one element; that it happened is told.
    """
    return lambda values: (
        not math.isfinite(values["output"]) and all(is_finite(values, name) for name in names)
    )


def slope_broke(*names: str) -> Holds:
    """The gradient is not finite although these operands and the incoming gradient are."""
    return lambda values: (
        not math.isfinite(values["grad_input"])
        and math.isfinite(values.get("grad_output", 0.0))
        and all(is_finite(values, name) for name in names)
    )
