"""Inverse functions that live on a bounded domain, with an infinite slope or a pole at its ends."""

from dataclasses import replace

from gradscope.ops.cures import PROBABILITY, UNIT, beyond
from gradscope.ops.edges import Edge, OpFact, fact, pole, steep, too_steep, undefined
from gradscope.ops.predicates import below, equals, outside, slope_broke

_END = equals("self", -1, 1)


def _outside_unit(name: str) -> Edge:
    return undefined(outside("self", -1, 1), f"{name} is NaN outside of [-1, 1]", UNIT)


def _steep_at_ends(name: str, slope: str) -> OpFact:
    end = steep(_END, f"slope is {slope} where {{x}} is -1 or 1", UNIT)
    return fact(name, _outside_unit(name), end)


def _poles_at_ends(name: str) -> OpFact:
    end = pole(_END, f"{name} is -inf at -1 and inf at 1", UNIT)
    return fact(name, _outside_unit(name), end)


ACOSH = fact(
    "acosh",
    undefined(below("self", 1), "acosh is NaN below 1", beyond("1", harmless="2.0")),
    steep(equals("self", 1), "slope is inf where {x} is 1", beyond("1", harmless="2.0")),
)

NDTRI = fact(
    "special_ndtri",
    undefined(outside("self", 0, 1), "ndtri is NaN outside of [0, 1]", PROBABILITY),
    pole(equals("self", 0, 1), "ndtri is -inf at 0 and inf at 1", PROBABILITY),
    too_steep(slope_broke(), "slope", replace(PROBABILITY, condition="{x} > {eps}")),
)

FACTS = (
    _steep_at_ends("acos", "-inf"),
    _steep_at_ends("asin", "inf"),
    _poles_at_ends("atanh"),
    _poles_at_ends("erfinv"),
    ACOSH,
    NDTRI,
)
