"""Division, its remainders, and what contains one."""

import math
from dataclasses import replace
from functools import partial

from gradscope.ops.cures import Cure, away, floor
from gradscope.ops.edges import (
    Edge,
    Holds,
    Nature,
    OpFact,
    Values,
    fact,
    overflow,
    pole,
    slope_too_large,
    too_near,
    too_steep,
)
from gradscope.ops.predicates import both, equals, infinite, largest, overflows
from gradscope.ops.shared import gradient_overflow, infinite_input, no_answer

_OVER_ZERO = "a division by 0 is inf"
_OVER_SQUARE = "the quotient of {x} and the divisor's square"
_MODULO_ZERO = "the remainder of a division by 0 is NaN"

# `clamp_min` only where all of the divisor is known to be at least 0; elsewhere it would turn
# a divisor of -2 into eps.


def _is_tiny(name: str) -> Holds:
    """So small that its reciprocal, or the square of that, leaves the dtype."""

    def holds(values: Values) -> bool:
        number = abs(values[name])
        return 0 < number and 1 / number > math.sqrt(largest(values))

    return holds


def _divisor(edge: Edge) -> tuple[Edge, Edge]:
    """The same edge with the two guards: for a divisor that is nowhere negative, and for any."""
    tiny = edge.nature is not Nature.POLE
    kept_above = floor(tiny=True) if tiny else replace(floor(), condition="{x} != 0")
    positive = both(edge.holds, lambda values: values[f"{edge.argument}.min"] >= 0)
    return replace(edge, holds=positive, cure=kept_above), replace(edge, cure=away(tiny=tiny))


_by_zero = partial(pole, cause="zero-division")


def _quotient(numerator: str, denominator: str) -> tuple[Edge, ...]:
    """The slope in the divisor is -a / b^2: it overflows sooner than the quotient."""
    quotient = overflows(numerator, denominator, by=lambda a, b: a / b)
    slope = overflows(numerator, denominator, by=lambda a, b: a / b / b)
    reciprocal = overflows(denominator, by=lambda b: 1 / b)
    nothing = both(equals(numerator, 0), equals(denominator, 0))
    is_tiny = _is_tiny(denominator)

    def steep(values: Values) -> bool:
        return is_tiny(values) and (slope(values) or reciprocal(values))

    below, above = denominator, numerator
    return (
        *_divisor(_by_zero(nothing, "0 / 0 is NaN", argument=below)),
        *_divisor(_by_zero(equals(denominator, 0), _OVER_ZERO, argument=below)),
        *_divisor(too_near(both(quotient, is_tiny), "the quotient", argument=below)),
        overflow(quotient, "the quotient", argument=above),
        *_divisor(too_steep(steep, "slope", argument=below)),
        slope_too_large(slope, _OVER_SQUARE, argument=above),
    )


def _modulus(name: str) -> OpFact:
    """The slope in the divisor is -trunc(a / b), or floor: the quotient itself."""
    quotient = overflows("self", "other", by=lambda a, b: a / b)
    rounded, tiny = "slope, the rounded quotient,", both(quotient, _is_tiny("other"))
    return fact(
        name,
        *_divisor(_by_zero(equals("other", 0), _MODULO_ZERO, argument="other")),
        *_divisor(too_steep(tiny, rounded, argument="other")),
        slope_too_large(quotient, rounded),
        infinite_input("self", infinite("self", "other"), "an operand is already inf"),
    )


FACTS = (
    fact(
        "div",
        no_answer(
            "self",
            lambda values: math.isinf(values["self"]) and math.isinf(values["other"]),
            "inf / inf is NaN",
        ),
        *_quotient("self", "other"),
        gradient_overflow("self", "other"),
    ),
    fact(
        "reciprocal",
        *_divisor(_by_zero(equals("self", 0), _OVER_ZERO)),
        *_divisor(too_near(overflows("self", by=lambda x: 1 / x), "1 / {x}")),
        *_divisor(too_steep(overflows("self", by=lambda x: 1 / x / x), "slope -1 / {x}^2")),
        inverse=lambda result: 1 / result if result else math.inf,
    ),
    fact("addcdiv", *_quotient("tensor1", "tensor2")),
    fact(
        "_weight_norm_interface",
        pole(
            equals("v", 0),
            "the norm of this part of {x} is 0, and it is divided by that",
            Cure(guard="{x} + {eps}"),
            argument="v",
            cause="zero-division",
        ),
    ),
    _modulus("fmod"),
    _modulus("remainder"),
)
