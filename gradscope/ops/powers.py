"""Roots and powers."""

import math
from dataclasses import replace

from gradscope.ops.cures import FINITE, NONZERO, Cure, away, floor, within
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import Values, fact, no_slope, overflow, pole, steep, too_steep, undefined
from gradscope.ops.predicates import below, both, equals, infinite, largest, overflows
from gradscope.ops.shared import gradient_overflow, infinite_input


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
    fact(
        "sqrt",
        _NEGATIVE_ROOT,
        steep(equals("self", 0), "slope is inf where {x} is 0", floor(Margin.ROOT)),
        inverse=lambda result: result * result,
    ),
    fact(
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
    fact(
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
    fact(
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
