"""The gamma family: poles at 0 and the negative integers."""

from __future__ import annotations

import math
from dataclasses import replace

from gradscope.ops.cures import FINITE, beyond, ceiling, floor
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import Edge, Holds, Nature, OpFact, Values
from gradscope.ops.predicates import both, equals, infinite, is_negative_integer, largest, overflows
from gradscope.ops.shared import infinite_input


def _edge(
    nature: Nature, holds: Holds, says: str, cause: str, slope: str, *, argument: str = "self"
) -> Edge:
    """All of them are at rest on positive numbers that are not tiny."""
    tiny = nature in (Nature.OVERFLOW, Nature.SLOPE_OVERFLOW)
    return Edge(argument, nature, holds, says, cause, slope=slope, cure=floor(tiny=tiny))


def _half_steps_below(values: Values) -> bool:
    """mvlgamma of p sums lgamma(x - i / 2) for i < p, and is finite above (p - 1) / 2 only."""
    return values["self"] <= (values["p"] - 1) / 2


def _is_order(order: int) -> Holds:
    return lambda values: values["n"] == order


LGAMMA = OpFact(
    "lgamma",
    (
        *(
            _edge(
                Nature.POLE,
                holds,
                "lgamma is inf at 0 and the negative integers",
                "domain-error",
                "nan",
            )
            for holds in (equals("self", 0), is_negative_integer("self"))
        ),
        Edge(
            "self",
            Nature.OVERFLOW,
            lambda values: (
                1 < values["self"] < math.inf
                and values["self"] > largest(values) / math.log(largest(values))
            ),
            "lgamma({x}) ~ {x} log({x}) leaves the dtype",
            "overflow",
            cure=ceiling(Margin.SQUARE, harmless="1.0"),
        ),
        _edge(
            Nature.SLOPE_OVERFLOW,
            overflows("self", by=lambda x: 1 / x),
            "slope digamma({x}) ~ -1 / {x} leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            "-inf",
        ),
    ),
    ("torch.lgamma", "Tensor.lgamma", "torch.special.gammaln"),
)

DIGAMMA = OpFact(
    "digamma",
    (
        _edge(Nature.POLE, equals("self", 0), "digamma has a pole at 0", "domain-error", "inf"),
        _edge(
            Nature.DOMAIN,
            is_negative_integer("self"),
            "digamma is NaN at the negative integers",
            "domain-error",
            "inf",
        ),
        _edge(
            Nature.OVERFLOW,
            overflows("self", by=lambda x: 1 / x),
            "digamma({x}) ~ -1 / {x} leaves the dtype where {x} is this close to 0",
            "overflow",
            "inf",
        ),
        _edge(
            Nature.SLOPE_OVERFLOW,
            overflows("self", by=lambda x: 1 / (x * x)),
            "slope trigamma({x}) ~ 1 / {x}^2 leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            "inf",
        ),
    ),
    ("torch.digamma", "Tensor.digamma", "torch.special.psi"),
)

POLYGAMMA = OpFact(
    "polygamma",
    (
        _edge(Nature.POLE, equals("self", 0), "polygamma has a pole at 0", "domain-error", "inf"),
        _edge(
            Nature.DOMAIN,
            both(_is_order(0), is_negative_integer("self")),
            "digamma is NaN at the negative integers",
            "domain-error",
            "inf",
        ),
        _edge(
            Nature.DOMAIN,
            lambda values: values["n"] >= 1 and values["self"] < 0 and math.isnan(values["output"]),
            "PyTorch's polygamma is NaN at negative operands",
            "domain-error",
            "nan",
        ),
        _edge(
            Nature.OVERFLOW,
            overflows("self", "n", by=lambda x, n: math.gamma(n + 1) / x ** (n + 1)),
            "polygamma ~ n! / {x}^(n + 1) leaves the dtype where {x} is this close to 0",
            "overflow",
            "inf",
        ),
        infinite_input(
            "self",
            infinite("self"),
            "the slope is the next polygamma, which PyTorch computes as NaN at inf",
            cure=replace(FINITE, harmless="1.0"),
        ),
        _edge(
            Nature.INFINITE_SLOPE,
            lambda values: values["self"] < 0,
            "slope is inf at the negative integers",
            "singular-derivative",
            "-inf",
        ),
        _edge(
            Nature.SLOPE_OVERFLOW,
            overflows("self", "n", by=lambda x, n: math.gamma(n + 2) / x ** (n + 2)),
            "slope ~ (n + 1)! / {x}^(n + 2) leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            "-inf",
        ),
    ),
    ("torch.polygamma", "Tensor.polygamma", "torch.special.polygamma"),
)

MVLGAMMA = OpFact(
    "mvlgamma",
    (
        Edge(
            "self",
            Nature.DOMAIN,
            _half_steps_below,
            "mvlgamma is not finite at or below (p - 1) / 2",
            "domain-error",
            slope="nan",
            cure=beyond("({p} - 1) / 2", harmless="{p}"),
        ),
        Edge(
            "self",
            Nature.OVERFLOW,
            lambda values: values["self"] > largest(values) / 1e3,
            "mvlgamma({x}) ~ p {x} log({x}) leaves the dtype",
            "overflow",
            cure=ceiling(Margin.SQUARE, harmless="{p}"),
        ),
        _edge(
            Nature.SLOPE_OVERFLOW,
            overflows("self", by=lambda x: 1 / x),
            "slope ~ -1 / {x} leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            "-inf",
        ),
    ),
    ("torch.mvlgamma", "Tensor.mvlgamma", "torch.special.multigammaln"),
)

ZETA = OpFact(
    "special_zeta",
    (
        Edge(
            "self",
            Nature.POLE,
            equals("self", 1),
            "zeta has a pole at 1",
            "domain-error",
            slope="nan",
            cure=beyond("1", harmless="2.0"),
        ),
        _edge(
            Nature.POLE,
            is_negative_integer("other"),
            "zeta has poles at 0 and the negative integers of its second argument",
            "domain-error",
            "nan",
            argument="other",
        ),
    ),
    ("torch.special.zeta",),
)

IGAMMA = OpFact(
    "igamma",
    (
        _edge(
            Nature.SLOPE_OVERFLOW,
            lambda values: values["other"] == 0 and values["self"] < 1,
            "slope other^(self - 1) is inf where {x} is 0",
            "singular-derivative",
            "inf",
            argument="other",
        ),
    ),
    ("torch.igamma", "torch.special.gammainc"),
)

FACTS = (LGAMMA, DIGAMMA, POLYGAMMA, MVLGAMMA, ZETA, IGAMMA)
