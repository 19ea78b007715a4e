"""Sums, products and casts of elements: regular but for overflow, and for what they do to inf."""

import math

from gradscope.ops.cures import away, within
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import (
    Edge,
    Holds,
    OpFact,
    Values,
    fact,
    overflow,
    slope_too_large,
    too_steep,
)
from gradscope.ops.predicates import infinite, largest, overflows, slope_broke
from gradscope.ops.shared import gradient_overflow, infinite_input, no_answer, value_overflow


def _cancels(sign: int) -> Edge:
    """inf - inf. `sign` is that of `other`; `alpha` scales it."""

    def holds(values: Values) -> bool:
        first, second = values["self"], sign * values.get("alpha", 1.0) * values["other"]
        return math.isinf(first) and math.isinf(second) and first == -second

    return no_answer("self", holds, "inf - inf is NaN")


def _zero_times_inf(zero: str, infinity: str) -> Edge:
    def holds(values: Values) -> bool:
        return values[zero] == 0 and math.isinf(values[infinity])

    return no_answer(infinity, holds, "0 * inf is NaN")


def _too_large(argument: str, holds: Holds, what: str) -> Edge:
    return overflow(holds, f"the {what}", argument=argument, wider=True)


def _sum_overflows(sign: int) -> Holds:
    def holds(values: Values) -> bool:
        total = values["self"] + sign * values.get("alpha", 1.0) * values["other"]
        finite = math.isfinite(values["self"]) and math.isfinite(values["other"])
        return finite and abs(total) > largest(values)

    return holds


def _sum(name: str, sign: int) -> OpFact:
    edges = (
        _cancels(sign),
        _too_large("self", _sum_overflows(sign), "sum"),
        value_overflow("self", "other", what="sum"),
    )
    return fact(name, *edges)


def _product(a: float, b: float) -> float:
    return a * b


FACTS = (
    _sum("add", 1),
    _sum("sub", -1),
    _sum("rsub", -1),
    fact(
        "mul",
        _zero_times_inf("self", "other"),
        _zero_times_inf("other", "self"),
        _too_large("self", overflows("self", "other", by=_product), "product"),
        gradient_overflow("self", "other"),
    ),
    fact(
        "addcmul",
        _zero_times_inf("tensor1", "tensor2"),
        _zero_times_inf("tensor2", "tensor1"),
        _too_large("tensor1", overflows("tensor1", "tensor2", by=_product), "product"),
        _too_large(
            "self", overflows("self", "tensor1", "tensor2", by=lambda x, a, b: x + a * b), "sum"
        ),
        gradient_overflow("tensor1", "tensor2"),
    ),
    fact(
        "lerp",
        _too_large(
            "self", overflows("self", "end", by=lambda a, b: b - a), "difference end - self"
        ),
        value_overflow("self", "end"),
    ),
    # A cast is where float16 training meets 65504: the operand is fine in its own dtype.
    fact(
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
    fact(
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
    fact(
        "sinc", _too_large("self", overflows("self", by=lambda x: math.pi * x), "product with pi")
    ),
    fact("frexp", too_steep(slope_broke(), "slope is a power of 2 that", away(tiny=True))),
    fact("round", value_overflow("self", what="scaled number")),
    fact("normal", value_overflow("mean", "std")),
    fact("rad2deg", _too_large("self", overflows("self", by=math.degrees), "result")),
)
