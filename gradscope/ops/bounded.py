"""Inverse functions that live on a bounded domain, with an infinite slope or a pole at its ends."""

from __future__ import annotations

from dataclasses import replace

from gradscope.ops.cures import PROBABILITY, UNIT, beyond
from gradscope.ops.edges import Edge, Nature, OpFact
from gradscope.ops.predicates import below, equals, outside, slope_broke


def _on_unit(
    name: str, end: Nature, says: str, cause: str, slope: str, spelled: tuple[str, ...]
) -> OpFact:
    """A function on [-1, 1] that breaks at both ends."""
    return OpFact(
        name,
        (
            Edge(
                "self",
                Nature.DOMAIN,
                outside("self", -1, 1),
                f"{name} is NaN outside of [-1, 1]",
                "domain-error",
                slope="nan",
                cure=UNIT,
            ),
            Edge("self", end, equals("self", -1, 1), says, cause, slope=slope, cure=UNIT),
        ),
        spelled,
    )


_STEEP = "slope is {} where {{x}} is -1 or 1"
_POLE = "{} is -inf at -1 and inf at 1"

ACOSH = OpFact(
    "acosh",
    (
        Edge(
            "self",
            Nature.DOMAIN,
            below("self", 1),
            "acosh is NaN below 1",
            "domain-error",
            slope="nan",
            cure=beyond("1", harmless="2.0"),
        ),
        Edge(
            "self",
            Nature.INFINITE_SLOPE,
            equals("self", 1),
            "slope is inf where {x} is 1",
            "singular-derivative",
            slope="inf",
            cure=beyond("1", harmless="2.0"),
        ),
    ),
    ("torch.acosh", "Tensor.acosh", "torch.arccosh"),
)

NDTRI = OpFact(
    "special_ndtri",
    (
        Edge(
            "self",
            Nature.DOMAIN,
            outside("self", 0, 1),
            "ndtri is NaN outside of [0, 1]",
            "domain-error",
            slope="nan",
            cure=PROBABILITY,
        ),
        Edge(
            "self",
            Nature.POLE,
            equals("self", 0, 1),
            "ndtri is -inf at 0 and inf at 1",
            "domain-error",
            slope="inf",
            cure=PROBABILITY,
        ),
        Edge(
            "self",
            Nature.SLOPE_OVERFLOW,
            slope_broke(),
            "slope leaves the dtype where {x} is this close to 0",
            "singular-derivative",
            slope="inf",
            cure=replace(PROBABILITY, condition="{x} > {eps}"),
        ),
    ),
    ("torch.special.ndtri",),
)

FACTS = (
    _on_unit(
        "acos",
        Nature.INFINITE_SLOPE,
        _STEEP.format("-inf"),
        "singular-derivative",
        "-inf",
        ("torch.acos", "torch.arccos", "Tensor.acos"),
    ),
    _on_unit(
        "asin",
        Nature.INFINITE_SLOPE,
        _STEEP.format("inf"),
        "singular-derivative",
        "inf",
        ("torch.asin", "torch.arcsin", "Tensor.asin"),
    ),
    _on_unit(
        "atanh",
        Nature.POLE,
        _POLE.format("atanh"),
        "domain-error",
        "inf",
        ("torch.atanh", "torch.arctanh", "Tensor.atanh"),
    ),
    _on_unit(
        "erfinv",
        Nature.POLE,
        _POLE.format("erfinv"),
        "domain-error",
        "inf",
        ("torch.erfinv", "Tensor.erfinv", "torch.special.erfinv"),
    ),
    ACOSH,
    NDTRI,
)
