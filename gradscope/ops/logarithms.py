"""Logarithms and the products that contain one."""

from __future__ import annotations

import math
from dataclasses import replace

from gradscope.ops.cures import PROBABILITY, beyond, floor
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import Edge, Holds, Nature, OpFact
from gradscope.ops.predicates import above, below, both, equals, overflows

_OF_ZERO = "the logarithm of 0 is -inf"
_OF_NEGATIVE = "the logarithm of a negative number is NaN"
_AT_MINUS_1 = "log(1 + {x}) is -inf where {x} is -1"
_BELOW_MINUS_1 = "log(1 + {x}) is NaN where {x} is below -1"
_ZERO_TIMES_LOG = "0 * log(0) is taken as 0, but PyTorch's formula for its slope is 0 / 0"


def _floored(
    argument: str, nature: Nature, holds: Holds, says: str, cause: str, slope: str
) -> Edge:
    """An edge at or below 0, or so close to it that the slope leaves the dtype."""
    return Edge(
        argument,
        nature,
        holds,
        says,
        cause,
        slope=slope,
        cure=floor(Margin.LOG, tiny=nature is Nature.SLOPE_OVERFLOW),
    )


def _one_more(
    argument: str, nature: Nature, holds: Holds, says: str, cause: str, slope: str
) -> Edge:
    """An edge of log(1 + x), at or below -1."""
    cure = beyond("-1", harmless="0.0")
    return Edge(argument, nature, holds, says, cause, slope=slope, cure=cure)


def _logarithm(name: str, base: float) -> OpFact:
    """log, log2, log10: the slope is 1 / (x ln base)."""
    return OpFact(
        name,
        (
            _floored("self", Nature.POLE, equals("self", 0), _OF_ZERO, "log-zero", "inf"),
            _floored("self", Nature.DOMAIN, below("self", 0), _OF_NEGATIVE, "domain-error", "nan"),
            _floored(
                "self",
                Nature.SLOPE_OVERFLOW,
                overflows("self", by=lambda x: 1 / (x * math.log(base))),
                "slope 1 / {x} leaves the dtype where {x} is this close to 0",
                "singular-derivative",
                "inf",
            ),
        ),
        (f"torch.{name}", f"Tensor.{name}"),
    )


LOG1P = OpFact(
    "log1p",
    (
        _one_more("self", Nature.POLE, equals("self", -1), _AT_MINUS_1, "log-zero", "inf"),
        _one_more("self", Nature.DOMAIN, below("self", -1), _BELOW_MINUS_1, "domain-error", "nan"),
    ),
    ("torch.log1p", "Tensor.log1p"),
)

LOGIT = OpFact(
    "logit",
    (
        Edge(
            "self",
            Nature.POLE,
            both(equals("self", 0, 1), lambda values: "eps" not in values),
            "logit is -inf at 0 and inf at 1",
            "log-zero",
            slope="inf",
            cure=PROBABILITY,
            stable="torch.logit({x}, eps={eps})",
        ),
        Edge(
            "self",
            Nature.DOMAIN,
            lambda values: "eps" not in values and not 0 <= values["self"] <= 1,
            "logit is NaN outside of [0, 1]",
            "domain-error",
            slope="nan",
            cure=PROBABILITY,
            stable="torch.logit({x}, eps={eps})",
        ),
        Edge(
            "self",
            Nature.SLOPE_OVERFLOW,
            overflows("self", by=lambda x: 1 / (x * (1 - x))),
            "slope leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            slope="inf",
            cure=replace(PROBABILITY, condition="{x} > {eps}"),
        ),
    ),
    ("torch.logit", "Tensor.logit", "torch.special.logit"),
)

XLOGY = OpFact(
    "xlogy",
    (
        _floored(
            "other",
            Nature.POLE,
            both(equals("other", 0), lambda values: values["self"] != 0),
            _OF_ZERO,
            "log-zero",
            "inf",
        ),
        _floored("other", Nature.DOMAIN, below("other", 0), _OF_NEGATIVE, "domain-error", "nan"),
        Edge(
            "self",
            Nature.OVERFLOW,
            overflows("self", "other", by=lambda x, y: x * math.log(y)),
            "the product with the logarithm leaves the dtype",
            "overflow",
        ),
        _floored(
            "other",
            Nature.REMOVABLE,
            both(equals("self", 0), equals("other", 0)),
            _ZERO_TIMES_LOG,
            "singular-derivative",
            "nan",
        ),
        _floored(
            "other",
            Nature.SLOPE_OVERFLOW,
            both(overflows("self", "other", by=lambda x, y: x / y), lambda v: abs(v["other"]) < 1),
            "slope leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            "inf",
        ),
    ),
    ("torch.xlogy", "Tensor.xlogy", "torch.special.xlogy"),
)

XLOG1PY = OpFact(
    "special_xlog1py",
    (
        _one_more(
            "other",
            Nature.POLE,
            both(equals("other", -1), lambda values: values["self"] != 0),
            _AT_MINUS_1,
            "log-zero",
            "inf",
        ),
        _one_more(
            "other", Nature.DOMAIN, below("other", -1), _BELOW_MINUS_1, "domain-error", "nan"
        ),
        Edge(
            "self",
            Nature.OVERFLOW,
            overflows("self", "other", by=lambda x, y: x * math.log1p(y)),
            "the product with the logarithm leaves the dtype",
            "overflow",
        ),
        _one_more(
            "other",
            Nature.REMOVABLE,
            both(equals("self", 0), equals("other", -1)),
            _ZERO_TIMES_LOG,
            "singular-derivative",
            "nan",
        ),
        Edge(
            "self",
            Nature.SLOPE_OVERFLOW,
            overflows("self", "other", by=lambda x, y: x / (1 + y)),
            "slope {x} / (1 + other) leaves the dtype",
            "overflow",
            slope="inf",
        ),
    ),
    ("torch.special.xlog1py",),
)

ENTR = OpFact(
    "special_entr",
    (
        _floored(
            "self",
            Nature.DOMAIN,
            below("self", 0),
            "-p log(p) is -inf where p is negative",
            "domain-error",
            "nan",
        ),
        Edge(
            "self",
            Nature.OVERFLOW,
            both(above("self", 1), overflows("self", by=lambda x: x * math.log(x))),
            "-p log(p) leaves the dtype",
            "overflow",
        ),
        _floored(
            "self",
            Nature.INFINITE_SLOPE,
            equals("self", 0),
            "slope -log(p) - 1 is inf where p is 0",
            "singular-derivative",
            "inf",
        ),
    ),
    ("torch.special.entr",),
)

FACTS = (
    _logarithm("log", math.e),
    _logarithm("log2", 2),
    _logarithm("log10", 10),
    LOG1P,
    LOGIT,
    XLOGY,
    XLOG1PY,
    ENTR,
)
