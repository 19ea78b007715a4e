"""Sums, products, quotients, remainders, roots and powers of elements, and casts."""

import math
from dataclasses import replace
from functools import partial
from operator import mul

from gradscope.ops.cures import FINITE, NONZERO, Cure, away, floor, within
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import (
    Edge,
    Holds,
    Nature,
    OpFact,
    Values,
    no_slope,
    overflow,
    pole,
    slope_too_large,
    steep,
    too_near,
    too_steep,
    undefined,
)
from gradscope.ops.predicates import below, both, equals, infinite, largest, overflows, slope_broke
from gradscope.ops.shared import gradient_overflow, infinite_input, no_answer, value_overflow


def _zero_times_inf(zero: str, infinity: str) -> Edge:
    return no_answer(infinity, both(equals(zero, 0), infinite(infinity)), "0 * inf is NaN")


def _too_large(argument: str, holds: Holds, what: str) -> Edge:
    return overflow(holds, f"the {what}", argument=argument, wider=True)


def _sum(name: str, sign: int) -> OpFact:
    """`sign` is that of `other`; `alpha` scales it."""

    def second(values: Values) -> float:
        return sign * values.get("alpha", 1.0) * values["other"]

    def is_too_large(values: Values) -> bool:
        is_finite = math.isfinite(values["self"]) and math.isfinite(values["other"])
        return is_finite and abs(values["self"] + second(values)) > largest(values)

    cancels = both(infinite("self"), lambda values: values["self"] == -second(values))
    return OpFact(
        name,
        no_answer("self", cancels, "inf - inf is NaN"),
        _too_large("self", is_too_large, "sum"),
        value_overflow("self", "other", what="sum"),
    )


_OVER_ZERO = "a division by 0 is inf"
_OVER_SQUARE = "the quotient of {x} and the divisor's square"
_MODULO_ZERO = "the remainder of a division by 0 is NaN"

# `clamp_min` only where all of the divisor is known to be at least 0; elsewhere it would turn
# a divisor of -2 into eps.


def _is_tiny(name: str) -> Holds:
    """So small that its reciprocal, or the square of that, leaves the dtype."""
    return overflows(name, by=lambda x: 1 / x / x)


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
    return OpFact(
        name,
        *_divisor(_by_zero(equals("other", 0), _MODULO_ZERO, argument="other")),
        *_divisor(too_steep(tiny, rounded, argument="other")),
        slope_too_large(quotient, rounded),
        infinite_input("self", infinite("self", "other"), "an operand is already inf"),
    )


def _fractional(values: Values) -> bool:
    return not values["exponent"].is_integer()


def _power_overflows(values: Values) -> bool:
    """Compared as logarithms: the power itself would leave Python's floats too."""
    base, exponent = abs(values["self"]), values["exponent"]
    if base == 0 or not math.isfinite(base) or not math.isfinite(exponent):
        return False
    return exponent * math.log(base) > math.log(largest(values))


def _power_slope_overflows(values: Values) -> bool:
    base, exponent = abs(values["self"]), values["exponent"]
    if base == 0 or exponent == 0 or not math.isfinite(base) or not math.isfinite(exponent):
        return False
    slope = math.log(abs(exponent)) + (exponent - 1) * math.log(base)
    return slope > math.log(largest(values))


_NEGATIVE_ROOT = undefined(
    below("self", 0), "the root of a negative number is NaN", floor(Margin.ROOT)
)


FACTS = (
    _sum("add", 1),
    _sum("sub", -1),
    _sum("rsub", -1),
    OpFact(
        "mul",
        _zero_times_inf("self", "other"),
        _zero_times_inf("other", "self"),
        _too_large("self", overflows("self", "other", by=mul), "product"),
        gradient_overflow("self", "other"),
    ),
    OpFact(
        "addcmul",
        _zero_times_inf("tensor1", "tensor2"),
        _zero_times_inf("tensor2", "tensor1"),
        _too_large("tensor1", overflows("tensor1", "tensor2", by=mul), "product"),
        _too_large(
            "self", overflows("self", "tensor1", "tensor2", by=lambda x, a, b: x + a * b), "sum"
        ),
        gradient_overflow("tensor1", "tensor2"),
    ),
    OpFact(
        "lerp",
        _too_large(
            "self", overflows("self", "end", by=lambda a, b: b - a), "difference end - self"
        ),
        value_overflow("self", "end"),
    ),
    # A cast is where float16 training meets 65504: the operand is fine in its own dtype.
    OpFact(
        "_to_copy",
        overflow(
            overflows("self", by=abs),
            "{x} is larger than the largest number of the dtype it is cast to",
            ending="",
            cure=within(Margin.RANGE),
            wider=True,
        ),
        slope_too_large(
            lambda values: abs(values["grad_output"]) > largest(values),
            "the gradient, finite in the wider dtype, is cast back and",
        ),
    ),
    OpFact(
        "atan2",
        infinite_input(
            "self",
            infinite("self", "other"),
            "slope is a quotient of {x} and its square: inf / inf",
        ),
        slope_too_large(
            overflows("self", "other", by=lambda y, x: y * y + x * x),
            "PyTorch's formula squares both sides, which",
        ),
    ),
    OpFact(
        "sinc", _too_large("self", overflows("self", by=lambda x: math.pi * x), "product with pi")
    ),
    OpFact("frexp", too_steep(slope_broke(), "slope is a power of 2 that", away(tiny=True))),
    OpFact("round", value_overflow("self", what="scaled number")),
    OpFact("normal", value_overflow("mean", "std")),
    OpFact("rad2deg", _too_large("self", overflows("self", by=math.degrees), "result")),
    OpFact(
        "div",
        no_answer("self", both(infinite("self"), infinite("other")), "inf / inf is NaN"),
        *_quotient("self", "other"),
        gradient_overflow("self", "other"),
    ),
    OpFact(
        "reciprocal",
        *_divisor(_by_zero(equals("self", 0), _OVER_ZERO)),
        *_divisor(too_near(overflows("self", by=lambda x: 1 / x), "1 / {x}")),
        *_divisor(too_steep(overflows("self", by=lambda x: 1 / x / x), "slope -1 / {x}^2")),
        inverse=lambda result: 1 / result if result else math.inf,
    ),
    OpFact("addcdiv", *_quotient("tensor1", "tensor2")),
    OpFact(
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
    OpFact(
        "sqrt",
        _NEGATIVE_ROOT,
        steep(equals("self", 0), "slope is inf where {x} is 0", floor(Margin.ROOT)),
        inverse=lambda result: result * result,
    ),
    OpFact(
        "rsqrt",
        pole(equals("self", 0), "1 / sqrt(0) is inf", floor(Margin.ROOT), cause="zero-division"),
        _NEGATIVE_ROOT,
        too_steep(
            overflows("self", by=lambda x: 0.5 * x**-1.5),
            "slope -1/2 {x}^(-3/2)",
            floor(Margin.ROOT, tiny=True),
        ),
        inverse=lambda result: 1 / result / result if result else math.inf,
    ),
    OpFact(
        "pow",
        pole(
            both(equals("self", 0), below("exponent", 0)),
            "0 to a negative power is inf",
            NONZERO,
            cause="zero-division",
        ),
        undefined(
            both(both(below("self", 0), _fractional), lambda values: values["exponent"] < 1),
            "a negative base has no real power with a fractional exponent",
            floor(Margin.ROOT),
        ),
        undefined(
            both(below("self", 0), _fractional),
            "a negative base has no real power with a fractional exponent",
            # The slope at 0 is 0: a kept 0 must stay what it is.
            Cure(guard="{x}.clamp_min(0)", condition="{x} >= 0", harmless="1.0"),
        ),
        overflow(_power_overflows, "the power", within(Margin.SQUARE, harmless="1.0")),
        infinite_input(
            "exponent",
            infinite("exponent"),
            "the exponent is already inf: its product with the power 0 is NaN",
            cure=replace(FINITE, harmless="1.0"),
        ),
        steep(
            lambda values: values["self"] == 0 and 0 < values["exponent"] < 1,
            "slope is inf where {x} is 0 and the exponent below 1",
            floor(Margin.ROOT),
        ),
        too_steep(
            both(_power_slope_overflows, lambda values: abs(values["self"]) < 1),
            "slope",
            away(tiny=True),
        ),
        no_slope(
            both(below("self", 0), equals("exponent.requires_grad", 1)),
            "the slope in the exponent is the power times log({x}), NaN where {x} is negative",
            floor(),
        ),
    ),
    OpFact(
        "hypot",
        overflow(overflows("self", "other", by=math.hypot), "the length"),
        no_slope(
            both(equals("self", 0), equals("other", 0)),
            "slope is 0 / 0 where both sides are 0",
            replace(NONZERO, margin=Margin.ROOT),
            stable="torch.sqrt({x}.square() + {other}.square() + {eps})",
        ),
        gradient_overflow("self", "other"),
    ),
)
