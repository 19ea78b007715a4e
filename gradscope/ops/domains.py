"""Ops that raise where they are given numbers outside of a range."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Domain:
    """The range of an operand, ends included; `position` is its place among the arguments."""

    role: str
    low: float = 0.0
    high: float = math.inf
    position: int = 0


REFUSES: Mapping[str, tuple[Domain, ...]] = {
    "bernoulli": (Domain("self", high=1.0),),
    "binary_cross_entropy": (Domain("self", high=1.0), Domain("target", high=1.0, position=1)),
    "multinomial": (Domain("self"),),
    "normal": (Domain("std", position=1),),
    "poisson": (Domain("self"),),
}
