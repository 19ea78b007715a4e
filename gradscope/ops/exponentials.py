"""Functions that grow like an exponential, and activations that a huge input breaks."""

import math
from collections.abc import Callable
from dataclasses import replace

from gradscope.ops.cures import FINITE, Cure, ceiling, lowest, within
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import OpFact, overflow, slope_too_large
from gradscope.ops.predicates import both, infinite, overflows
from gradscope.ops.shared import infinite_input, no_answer, value_overflow


def _growing(
    name: str,
    by: Callable[[float], float],
    *,
    even: bool = False,
    inverse: Callable[[float], float] | None = None,
) -> OpFact:
    """`even`: grows on both sides, as cosh; else only towards positive inputs."""
    return OpFact(
        name,
        overflow(
            overflows("self", by=by),
            f"{name.removeprefix('special_')} of an operand this large",
            within(Margin.EXPONENT) if even else ceiling(Margin.EXPONENT),
        ),
        inverse=inverse,
    )


def _back(logarithm: Callable[[float], float]) -> Callable[[float], float]:
    """The operand of a result; one that has underflown comes of -inf as far as anybody can tell."""

    def value(result: float) -> float:
        try:
            return logarithm(result)
        except ValueError:
            return -math.inf

    return value


def _bessel(order: int) -> Callable[[float], float]:
    """I_n(x) ~ exp(x) / sqrt(2 pi x) for large x: within 1 % where it overflows."""

    def value(x: float) -> float:
        if abs(x) < 10:
            return 0.0
        return math.exp(abs(x) - 0.5 * math.log(2 * math.pi * abs(x))) * (1 - order / (2 * abs(x)))

    return value


def _infinite_activation(name: str) -> OpFact:
    """x * gate(x) at -inf is -inf * 0."""
    return OpFact(
        name,
        no_answer(
            "self",
            lambda values: values["self"] == -math.inf,
            f"{name} multiplies -inf by a gate that is 0",
            cure=replace(lowest(Margin.EXPONENT), condition=FINITE.condition),
        ),
    )


FACTS = (
    _growing("exp", math.exp, inverse=_back(math.log)),
    _growing("exp2", lambda x: 2.0**x, inverse=_back(math.log2)),
    _growing("expm1", math.expm1, inverse=_back(math.log1p)),
    _growing("sinh", math.sinh, even=True),
    _growing("cosh", math.cosh, even=True),
    _growing("i0", _bessel(0), even=True),
    _growing("special_i1", _bessel(1), even=True),
    _infinite_activation("silu"),
    _infinite_activation("mish"),
    OpFact(
        "hardswish",
        *_infinite_activation("hardswish").edges,
        overflow(
            overflows("self", by=lambda x: 6 * x),
            "6 {x}, before it is divided by 6,",
            within(Margin.SQUARE),
        ),
    ),
    OpFact("elu", value_overflow("self")),
    OpFact(
        "special_erfcx",
        overflow(
            # ~ 2 exp(x^2) for negative x
            overflows("self", by=lambda x: 2 * math.exp(x * x) if x < 0 else 0.0),
            "exp({x}^2) erfc({x})",
            Cure(
                guard="{x}.clamp_min(-{eps} ** 0.5)",
                condition="{x} > -{eps} ** 0.5",
                harmless="0.0",
                margin=Margin.EXPONENT,
            ),
        ),
        infinite_input(
            "self",
            infinite("self"),
            "the slope 2 {x} erfcx({x}) - 2/sqrt(pi) is inf * 0 where {x} is inf",
        ),
        slope_too_large(
            overflows("self", by=lambda x: 2 * x),
            "the factor 2 {x} in the slope",
            ceiling(Margin.SQUARE),
        ),
    ),
    OpFact(
        "ldexp",
        overflow(
            overflows("self", "other", by=lambda x, power: x * 2.0**power),
            "{x} is an exponent of 2 beyond the dtype",
            ceiling(Margin.EXPONENT),
            ending="",
            argument="other",
        ),
    ),
    OpFact(
        "gelu",
        *_infinite_activation("gelu").edges,
        slope_too_large(
            overflows("self", by=lambda x: x * x * x),
            "PyTorch's formula cubes {x}, which leaves the dtype; the true slope is 0 or 1",
            within(Margin.SQUARE),
            ending="",
        ),
        value_overflow("self"),
    ),
    OpFact(
        "special_log_ndtr",
        overflow(
            both(overflows("self", by=lambda x: x * x / 2), lambda values: values["self"] < 0),
            "the tail -{x}^2 / 2",
            lowest(Margin.SQUARE),
        ),
    ),
)
