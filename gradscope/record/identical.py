"""What stays the same for all values: weights whose units are, and get the same gradient; and
normalisations of single values, each of which is 0 less its own mean."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gradscope.facts import Call, Identical, Lone
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.finite import plain
from gradscope.record.graph import node_name, shape_of
from gradscope.record.passes import BackwardPass

_MOST = 8  # weights, or places
_ROUNDED = 1e-4  # of the largest element: how a product is rounded hangs on the place in a matrix
_VIEWS = 2  # between a weight and the product


class Units:
    """What the steps show that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        # By id of a weight, and dimension: those whose units are the same, with the first unit as
        # it was at first. They are kept, few as they are, so that nothing else can have the id.
        self._alike: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        # By id of a weight, the dimensions whose units differed: they go on so. A weak reference
        # would be in the way of who swaps tensors.
        self._apart: dict[int, set[int]] = {}
        self.found: dict[tuple[int, int], Identical] = {}

    def after_backward(self, one: BackwardPass) -> None:
        for node in one.above if one.accumulates else ():
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, torch.nn.Parameter) and leaf.dim() > 1:
                apart = self._apart.setdefault(id(leaf), set())
                for dim in {0, 1} - apart:
                    self._look_at(leaf, dim, node, one)

    def _look_at(self, leaf: torch.Tensor, dim: int, node: Any, one: BackwardPass) -> None:
        key = id(leaf), dim
        unit = _unit(leaf, dim)
        if unit is None or _unit(leaf.grad, dim) is None:
            self._alike.pop(key, None)
            self.found.pop(key, None)
            values = plain(leaf)
            if unit is None and (values is None or bool(values.any())):  # of 0 alone: not yet
                self._apart[id(leaf)].add(dim)
        elif key not in self._alike:
            if len(self._alike) < _MOST:
                self._alike[key] = leaf, unit
        elif key not in self.found and not unit.equal(self._alike[key][1]):
            call, is_transposed = self._product(node, one.above)
            if call is not None:
                name = self._context.names.name_of_leaf(leaf, one.frame) or "a weight"
                of_inputs = (dim == 1) is is_transposed
                fact = Identical(name, leaf.shape[dim], of_inputs, call, self._context.step)
                self.found[key] = fact

    def _product(self, node: Any, above: Mapping[Any, Sequence[Any]]) -> tuple[Call | None, bool]:
        """The one that reads a weight, and whether its rows are the units, as those of a layer: the
        columns are in `x @ w`."""
        is_transposed = node.variable.dim() > 2  # as a convolution has it
        for _ in range(_VIEWS):
            if len(above[node]) != 1:
                break
            (node,) = above[node]
            note = self._context.call_of_node(node)
            if note is None or not note.info.view:
                call = self._context.call(node)
                is_product = call is not None and has(call.op, Trait.MULTIPLIES)
                return call if is_product else None, is_transposed
            is_transposed = True
        return None, is_transposed


def _unit(tensor: torch.Tensor | None, dim: int) -> torch.Tensor | None:
    """A copy of the first one along a dimension; None where others differ, or all are 0."""
    values = plain(tensor) if tensor is not None else None
    if values is None or values.shape[dim] < 2:
        return None
    first = values.narrow(dim, 0, 1)
    apart = _ROUNDED * first.abs().max()
    others = (values.narrow(dim, 1, 1), values)  # where two differ, most do
    if not (apart > 0 and all(bool(((one - first).abs() <= apart).all()) for one in others)):
        return None
    return first.clone()


class LoneValues:
    """What the graphs of the steps show that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.found: dict[object, Lone] = {}  # by place

    def after_backward(self, one: BackwardPass) -> None:
        for node in one.above if len(self.found) < _MOST else ():
            if _group(node) == 1 and (call := self._context.call(node)) is not None:
                shape = shape_of(node)
                self.found.setdefault(call.location, Lone(call, self._context.step, shape))


def _group(node: Any) -> int:
    """How many values are normalised together; 0 where that is no normalisation."""
    match node_name(node):
        case "NativeGroupNormBackward0":
            return int(node._saved_C * node._saved_HxW // node._saved_group)
        case "NativeLayerNormBackward0":
            return math.prod(node._saved_normalized_shape)
    return 0
