"""Normalisations of single values, each of which is 0 less its own mean."""

import math
from typing import Any

from gradscope.facts import Lone
from gradscope.record.context import RunContext
from gradscope.record.graph import node_name, shape_of
from gradscope.record.passes import BackwardPass

_MOST = 8  # places


class LoneValues:
    """What the graphs of the steps show that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._kept: dict[object, Lone] = {}  # by place

    @property
    def found(self) -> tuple[Lone, ...]:
        return tuple(self._kept.values())

    def after_backward(self, one: BackwardPass) -> None:
        for node in one.above if len(self._kept) < _MOST else ():
            if _group(node) == 1 and (call := self._context.call(node)) is not None:
                lone = Lone(call, self._context.step, shape_of(node))
                self._kept.setdefault(call.location, lone)


def _group(node: Any) -> int:
    """How many values are normalised together; 0 where that is no normalisation."""
    match node_name(node):
        case "NativeGroupNormBackward0":
            return int(node._saved_C * node._saved_HxW // node._saved_group)
        case "NativeLayerNormBackward0":
            return math.prod(node._saved_normalized_shape)
    return 0
