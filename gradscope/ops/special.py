"""The gamma family, with poles at 0 and the negative integers; and inverse functions that live on a
bounded domain, with an infinite slope or a pole at its ends."""

import math
from dataclasses import replace

from gradscope.ops.cures import FINITE, PROBABILITY, UNIT, beyond, ceiling, floor
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import Edge, OpFact, overflow, pole, steep, too_near, too_steep, undefined
from gradscope.ops.predicates import (
    below,
    both,
    equals,
    infinite,
    is_negative_integer,
    largest,
    outside,
    overflows,
    slope_broke,
)
from gradscope.ops.shared import infinite_input

_POSITIVE, _NOT_TINY = floor(), floor(tiny=True)
_END = equals("self", -1, 1)


def _outside_unit(name: str) -> Edge:
    return undefined(outside("self", -1, 1), f"{name} is NaN outside of [-1, 1]", UNIT)


def _steep_at_ends(name: str, slope: str) -> OpFact:
    end = steep(_END, f"slope is {slope} where {{x}} is -1 or 1", UNIT)
    return OpFact(name, _outside_unit(name), end)


def _poles_at_ends(name: str) -> OpFact:
    end = pole(_END, f"{name} is -inf at -1 and inf at 1", UNIT)
    return OpFact(name, _outside_unit(name), end)


FACTS = (
    OpFact(
        "lgamma",
        *(
            pole(holds, "lgamma is inf at 0 and the negative integers", _POSITIVE)
            for holds in (equals("self", 0), is_negative_integer("self"))
        ),
        overflow(
            lambda values: (
                1 < values["self"] < math.inf
                and values["self"] > largest(values) / math.log(largest(values))
            ),
            "lgamma({x}) ~ {x} log({x})",
            ceiling(Margin.SQUARE, harmless="1.0"),
        ),
        too_steep(
            overflows("self", by=lambda x: 1 / x), "slope digamma({x}) ~ -1 / {x}", _NOT_TINY
        ),
    ),
    OpFact(
        "digamma",
        pole(equals("self", 0), "digamma has a pole at 0", _POSITIVE),
        undefined(
            is_negative_integer("self"), "digamma is NaN at the negative integers", _POSITIVE
        ),
        too_near(overflows("self", by=lambda x: 1 / x), "digamma({x}) ~ -1 / {x}", _NOT_TINY),
        too_steep(
            overflows("self", by=lambda x: 1 / (x * x)),
            "slope trigamma({x}) ~ 1 / {x}^2",
            _NOT_TINY,
        ),
    ),
    OpFact(
        "polygamma",
        pole(equals("self", 0), "polygamma has a pole at 0", _POSITIVE),
        undefined(
            both(equals("n", 0), is_negative_integer("self")),
            "digamma is NaN at the negative integers",
            _POSITIVE,
        ),
        undefined(
            lambda values: values["n"] >= 1 and values["self"] < 0 and math.isnan(values["output"]),
            "PyTorch's polygamma is NaN at negative operands",
            _POSITIVE,
        ),
        too_near(
            overflows("self", "n", by=lambda x, n: math.gamma(n + 1) / x ** (n + 1)),
            "polygamma ~ n! / {x}^(n + 1)",
            _NOT_TINY,
        ),
        infinite_input(
            "self",
            infinite("self"),
            "the slope is the next polygamma, which PyTorch computes as NaN at inf",
            cure=replace(FINITE, harmless="1.0"),
        ),
        steep(
            lambda values: values["self"] < 0, "slope is inf at the negative integers", _POSITIVE
        ),
        too_steep(
            overflows("self", "n", by=lambda x, n: math.gamma(n + 2) / x ** (n + 2)),
            "slope ~ (n + 1)! / {x}^(n + 2)",
            _NOT_TINY,
        ),
    ),
    OpFact(
        "mvlgamma",
        undefined(
            # It sums lgamma(x - i / 2) for i < p.
            lambda values: values["self"] <= (values["p"] - 1) / 2,
            "mvlgamma is not finite at or below (p - 1) / 2",
            beyond("({p} - 1) / 2", harmless="{p}"),
        ),
        overflow(
            lambda values: values["self"] > largest(values) / 1e3,
            "mvlgamma({x}) ~ p {x} log({x})",
            ceiling(Margin.SQUARE, harmless="{p}"),
        ),
        too_steep(overflows("self", by=lambda x: 1 / x), "slope ~ -1 / {x}", _NOT_TINY),
    ),
    OpFact(
        "special_zeta",
        pole(equals("self", 1), "zeta has a pole at 1", beyond("1", harmless="2.0")),
        pole(
            is_negative_integer("other"),
            "zeta has poles at 0 and the negative integers of its second argument",
            _POSITIVE,
            argument="other",
        ),
    ),
    OpFact(
        "igamma",
        too_steep(
            lambda values: values["other"] == 0 and values["self"] < 1,
            "slope other^(self - 1) is inf where {x} is 0",
            _NOT_TINY,
            ending="",
            argument="other",
        ),
    ),
    _steep_at_ends("acos", "-inf"),
    _steep_at_ends("asin", "inf"),
    _poles_at_ends("atanh"),
    _poles_at_ends("erfinv"),
    OpFact(
        "acosh",
        undefined(below("self", 1), "acosh is NaN below 1", beyond("1", harmless="2.0")),
        steep(equals("self", 1), "slope is inf where {x} is 1", beyond("1", harmless="2.0")),
    ),
    OpFact(
        "special_ndtri",
        undefined(outside("self", 0, 1), "ndtri is NaN outside of [0, 1]", PROBABILITY),
        pole(equals("self", 0, 1), "ndtri is -inf at 0 and inf at 1", PROBABILITY),
        too_steep(slope_broke(), "slope", replace(PROBABILITY, condition="{x} > {eps}")),
    ),
)
