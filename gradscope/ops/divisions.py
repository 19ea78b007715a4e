"""Division, its remainders, and what contains one."""

from __future__ import annotations

import math
from dataclasses import replace

from gradscope.ops.cures import away, floor
from gradscope.ops.edges import Edge, Holds, Nature, OpFact, Values
from gradscope.ops.predicates import both, equals, infinite, largest, overflows
from gradscope.ops.shared import gradient_overflow, infinite_input, no_answer

# `clamp_min` only where all of the divisor is known to be at least 0; elsewhere it would turn
# a divisor of -2 into eps.


def _nowhere_negative(name: str) -> Holds:
    return lambda values: values[f"{name}.min"] >= 0


def _is_tiny(name: str) -> Holds:
    """So small that its reciprocal, or the square of that, leaves the dtype."""

    def holds(values: Values) -> bool:
        number = abs(values[name])
        return 0 < number and (1 / number) ** 2 > largest(values)

    return holds


def _divisor(
    name: str, nature: Nature, holds: Holds, says: str, cause: str, slope: str
) -> tuple[Edge, Edge]:
    """The same edge with the two guards: for a divisor that is nowhere negative, and for any."""
    return (
        Edge(
            name,
            nature,
            both(holds, _nowhere_negative(name)),
            says,
            cause,
            slope=slope,
            cure=replace(floor(), condition="{x} != 0")
            if nature is Nature.POLE
            else floor(tiny=True),
        ),
        Edge(
            name, nature, holds, says, cause, slope=slope, cure=away(tiny=nature is not Nature.POLE)
        ),
    )


def _quotient_slope(numerator: str, denominator: str) -> tuple[Edge, ...]:
    """The slope in the divisor is -a / b^2: it overflows sooner than the quotient."""
    slope = overflows(numerator, denominator, by=lambda a, b: a / b / b)
    reciprocal = overflows(denominator, by=lambda b: 1 / b)
    return (
        *_divisor(
            denominator,
            Nature.SLOPE_OVERFLOW,
            lambda values: _is_tiny(denominator)(values) and (slope(values) or reciprocal(values)),
            "slope leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            "-inf",
        ),
        Edge(
            numerator,
            Nature.SLOPE_OVERFLOW,
            slope,
            "the quotient of {x} and the divisor's square leaves the dtype",
            "overflow",
            slope="-inf",
        ),
    )


def _zero_over_zero(numerator: str, denominator: str) -> tuple[Edge, Edge]:
    return _divisor(
        denominator,
        Nature.POLE,
        both(equals(numerator, 0), equals(denominator, 0)),
        "0 / 0 is NaN",
        "zero-division",
        "nan",
    )


def _over_zero(denominator: str) -> tuple[Edge, Edge]:
    return _divisor(
        denominator,
        Nature.POLE,
        equals(denominator, 0),
        "a division by 0 is inf",
        "zero-division",
        "-inf",
    )


def _quotient_overflow(numerator: str, denominator: str) -> tuple[Edge, ...]:
    holds = overflows(numerator, denominator, by=lambda a, b: a / b)
    return (
        *_divisor(
            denominator,
            Nature.OVERFLOW,
            both(holds, _is_tiny(denominator)),
            "the quotient leaves the dtype where {x} is this close to 0",
            "overflow",
            "-inf",
        ),
        Edge(
            numerator, Nature.OVERFLOW, holds, "the quotient leaves the dtype", "overflow", "-inf"
        ),
    )


DIV = OpFact(
    "div",
    (
        no_answer(
            "self",
            lambda values: math.isinf(values["self"]) and math.isinf(values["other"]),
            "inf / inf is NaN",
        ),
        *_zero_over_zero("self", "other"),
        *_over_zero("other"),
        *_quotient_overflow("self", "other"),
        *_quotient_slope("self", "other"),
        gradient_overflow("self", "other"),
    ),
    ("/", "torch.div", "torch.true_divide", "Tensor.div"),
)

RECIPROCAL = OpFact(
    "reciprocal",
    (
        *_over_zero("self"),
        *_divisor(
            "self",
            Nature.OVERFLOW,
            overflows("self", by=lambda x: 1 / x),
            "1 / {x} leaves the dtype where {x} is this close to 0",
            "overflow",
            "-inf",
        ),
        *_divisor(
            "self",
            Nature.SLOPE_OVERFLOW,
            overflows("self", by=lambda x: 1 / x / x),
            "slope -1 / {x}^2 leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            "-inf",
        ),
    ),
    ("1 /", "torch.reciprocal", "Tensor.reciprocal"),
    inverse=lambda result: 1 / result if result else math.inf,
)

ADDCDIV = OpFact(
    "addcdiv",
    (
        *_zero_over_zero("tensor1", "tensor2"),
        *_over_zero("tensor2"),
        *_quotient_overflow("tensor1", "tensor2"),
        *_quotient_slope("tensor1", "tensor2"),
    ),
    ("torch.addcdiv", "Tensor.addcdiv"),
)


def _modulus(name: str, spelled: tuple[str, ...]) -> OpFact:
    """The slope in the divisor is -trunc(a / b), or floor: the quotient itself."""
    quotient = overflows("self", "other", by=lambda a, b: a / b)
    return OpFact(
        name,
        (
            *_divisor(
                "other",
                Nature.POLE,
                equals("other", 0),
                "the remainder of a division by 0 is NaN",
                "zero-division",
                "-inf",
            ),
            *_divisor(
                "other",
                Nature.SLOPE_OVERFLOW,
                both(quotient, _is_tiny("other")),
                "slope, the rounded quotient, leaves the dtype where {x} is this close to 0",
                "singular-derivative",
                "-inf",
            ),
            Edge(
                "self",
                Nature.SLOPE_OVERFLOW,
                quotient,
                "slope, the rounded quotient, leaves the dtype",
                "overflow",
                slope="-inf",
            ),
            infinite_input("self", infinite("self", "other"), "an operand is already inf"),
        ),
        spelled,
    )


WEIGHT_NORM = OpFact(
    "_weight_norm_interface",
    (
        Edge(
            "v",
            Nature.POLE,
            equals("v", 0),
            "the norm of this part of {x} is 0, and it is divided by that",
            "zero-division",
            slope="nan",
        ),
    ),
    ("torch.nn.utils.parametrizations.weight_norm", "torch.nn.utils.weight_norm"),
)

FACTS = (
    DIV,
    RECIPROCAL,
    ADDCDIV,
    WEIGHT_NORM,
    _modulus("fmod", ("torch.fmod", "Tensor.fmod")),
    _modulus("remainder", ("%", "torch.remainder", "Tensor.remainder")),
)
