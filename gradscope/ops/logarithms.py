"""Logarithms and the products that contain one."""

import math
from collections.abc import Callable
from dataclasses import replace

from gradscope.ops.cures import PROBABILITY, Cure, beyond, floor
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import (
    Edge,
    OpFact,
    overflow,
    pole,
    removable,
    slope_too_large,
    steep,
    too_steep,
    undefined,
)
from gradscope.ops.predicates import above, below, both, equals, overflows

_OF_ZERO = "the logarithm of 0 is -inf"
_OF_NEGATIVE = "the logarithm of a negative number is NaN"
_AT_MINUS_1 = "log(1 + {x}) is -inf where {x} is -1"
_BELOW_MINUS_1 = "log(1 + {x}) is NaN where {x} is below -1"
_ZERO_TIMES_LOG = "0 * log(0) is taken as 0, but PyTorch's formula for its slope is 0 / 0"


_POSITIVE, _NOT_TINY = floor(Margin.LOG), floor(Margin.LOG, tiny=True)
_ABOVE_MINUS_1 = beyond("-1", harmless="0.0")


def _logarithm(name: str, base: float) -> OpFact:
    """log, log2, log10: the slope is 1 / (x ln base)."""
    return OpFact(
        name,
        pole(equals("self", 0), _OF_ZERO, _POSITIVE, cause="log-zero"),
        undefined(below("self", 0), _OF_NEGATIVE, _POSITIVE),
        too_steep(
            overflows("self", by=lambda x: 1 / (x * math.log(base))), "slope 1 / {x}", _NOT_TINY
        ),
    )


def _product(
    name: str,
    at: float,
    log: Callable[[float], float],
    says: tuple[str, str],
    cure: Cure,
    edge: Edge,
) -> OpFact:
    """self times the logarithm of `other`, which ends `at` a point. `says` is what there is, and
    below it; `edge` that of the slope."""
    end = equals("other", at)
    return OpFact(
        name,
        pole(
            both(end, lambda values: values["self"] != 0),
            says[0],
            cure,
            argument="other",
            cause="log-zero",
        ),
        undefined(below("other", at), says[1], cure, argument="other"),
        overflow(
            overflows("self", "other", by=lambda x, y: x * log(y)), "the product with the logarithm"
        ),
        removable(both(equals("self", 0), end), _ZERO_TIMES_LOG, cure, argument="other"),
        edge,
    )


FACTS = (
    _logarithm("log", math.e),
    _logarithm("log2", 2),
    _logarithm("log10", 10),
    OpFact(
        "log1p",
        pole(equals("self", -1), _AT_MINUS_1, _ABOVE_MINUS_1, cause="log-zero"),
        undefined(below("self", -1), _BELOW_MINUS_1, _ABOVE_MINUS_1),
    ),
    OpFact(
        "logit",
        pole(
            both(equals("self", 0, 1), lambda values: "eps" not in values),
            "logit is -inf at 0 and inf at 1",
            PROBABILITY,
            cause="log-zero",
            stable="torch.logit({x}, eps={eps})",
        ),
        undefined(
            lambda values: "eps" not in values and not 0 <= values["self"] <= 1,
            "logit is NaN outside of [0, 1]",
            PROBABILITY,
            stable="torch.logit({x}, eps={eps})",
        ),
        too_steep(
            overflows("self", by=lambda x: 1 / (x * (1 - x))),
            "slope",
            replace(PROBABILITY, condition="{x} > {eps}"),
        ),
    ),
    _product(
        "xlogy",
        0,
        math.log,
        (_OF_ZERO, _OF_NEGATIVE),
        _POSITIVE,
        too_steep(
            both(overflows("self", "other", by=lambda x, y: x / y), lambda v: abs(v["other"]) < 1),
            "slope",
            _NOT_TINY,
            argument="other",
        ),
    ),
    _product(
        "special_xlog1py",
        -1,
        math.log1p,
        (_AT_MINUS_1, _BELOW_MINUS_1),
        _ABOVE_MINUS_1,
        slope_too_large(
            overflows("self", "other", by=lambda x, y: x / (1 + y)), "slope {x} / (1 + other)"
        ),
    ),
    OpFact(
        "special_entr",
        undefined(below("self", 0), "-p log(p) is -inf where p is negative", _POSITIVE),
        overflow(
            both(above("self", 1), overflows("self", by=lambda x: x * math.log(x))), "-p log(p)"
        ),
        steep(equals("self", 0), "slope -log(p) - 1 is inf where p is 0", _POSITIVE),
    ),
)
