"""Gradients that one op makes huge, measured at the nodes of one backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts.events import Operand
from gradscope.facts.places import Call


@dataclass(frozen=True, slots=True)
class Leap:
    """An op whose backward multiplied some elements of the gradient by `slope`.

    `steep` of `numel` elements have such slopes, and `others` is the largest of the rest (None:
    there is no rest). `earlier` is the largest slope of the same call at the steps before, None
    without any. `stretch` is the slope in units of the values: times the size of what the op read,
    over the size of what it gave; near 1 where the slope comes of the units alone, None where one
    of the two is 0. `explained` is the largest number that the op read or gave. `leaf` is the one
    below that got the largest gradient through this op: `norm` is the norm of that, `carried` how
    many times the gradient that came to the steep elements, and the one that the others handed on,
    it is at least; `leaf_stretch` is as `stretch`, between the leaf and what the op gave.

    `operand` is the one that is next to a singular point of the op, with its value at `index`, as
    far as the op table knows such a point: `near` is the largest distance from it of the steep
    elements, `far` the smallest of the rest. `in_reach`: rounding alone could put it there. `own`:
    the steep slope is that towards this operand. `by_factor`: the gradient was multiplied by what
    `call` gave.
    """

    step: int
    call: Call
    slope: float
    others: float | None
    earlier: float | None
    steep: int
    numel: int
    index: tuple[int, ...]
    stretch: float | None
    explained: float
    leaf: str
    norm: float
    carried: float
    leaf_stretch: float | None
    operand: Operand | None = None
    near: float | None = None
    far: float | None = None
    in_reach: bool = False
    own: bool = True
    by_factor: bool = False
