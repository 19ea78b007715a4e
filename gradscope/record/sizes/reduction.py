"""Whether a loss is a sum or a mean of its terms, and what it is multiplied by."""

import ast
import math
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from gradscope.facts import Summed
from gradscope.ops.display import node_stem
from gradscope.record.context import RunContext
from gradscope.record.finite import plain
from gradscope.record.graph import inputs, reached, saved
from gradscope.record.sites import place_of
from gradscope.source import expression, parsed
from gradscope.source.literals import number

_MEAN, _SUM = 1, 2  # at::Reduction
_DEEPEST = 64  # nodes between a loss and the means that it is made of
_FEWEST = 8  # terms: over less, a sum and a mean are the same to a learning rate
_HANDS_ON = ("AddBackward0", "SubBackward0", "NegBackward0", "ToCopyBackward0", "SqueezeBackward0")
_SCALES = ("MulBackward0", "DivBackward0")
_PER_ROW = ("NllLoss", "NllLoss2D")  # whose mean divides by the rows alone


def summed(roots: Sequence[torch.Tensor], context: RunContext) -> Summed | None:
    """The largest sum that goes into the only root, at most times a constant that is no 1 / N."""
    if len(roots) != 1:
        return None
    found: list[tuple[float, int, Any]] = []  # what it weighs, its terms, the node
    waiting: list[tuple[Any, float]] = [(roots[0].grad_fn, 1.0)]
    for _ in range(_DEEPEST):
        if not waiting:
            break
        node, weight = waiting.pop()
        if node is None:
            continue
        if terms := _terms(node):
            found.append((weight * terms, terms, node))
        elif below := _linear_in(node):
            by = _multiplied_by(node)
            waiting += [(one, weight * abs(by)) for one in below if by is not None]
    size, terms, node = max(found, key=itemgetter(0), default=(0.0, 0, None))
    if terms < _FEWEST or size < _FEWEST:
        return None
    call = context.call_of_node(node)
    place = place_of(call.user) if call is not None else None
    return Summed(terms, call.info.name if call is not None else "sum", place)


class Factor(NamedTuple):
    """By how much a mean goes into what is differentiated; `written` is the part of it that stands
    in the source as a number, or may do so."""

    whole: float
    written: float


def factor_of_mean(
    roots: Sequence[torch.Tensor], given: Sequence[Any], context: RunContext
) -> Factor | None:
    """The largest factor of a mean; None where there is no mean, or what it is multiplied by is no
    constant. `given` are the gradients of the roots."""
    found: list[Factor] = []
    waiting = [
        (root.grad_fn, Factor(_given(one), 1.0)) for root, one in zip(roots, given, strict=False)
    ]
    for _ in range(_DEEPEST):
        if not waiting:
            return max(found, default=None)
        node, factor = waiting.pop()
        name, below = (node.name(), _linear_in(node)) if node is not None else ("", [])
        if node_stem(name) == "Mean" or getattr(node, "_saved_reduction", None) == _MEAN:
            found.append(Factor(abs(factor.whole), abs(factor.written)))
        elif name in _HANDS_ON:
            waiting += [(one, factor) for one in below]
        elif below:
            if (by := _multiplied_by(node)) is None:
                return None
            written = by if _is_written(node, context) else 1.0
            waiting.append((below[0], Factor(factor.whole * by, factor.written * written)))
    return None


def _linear_in(node: Any) -> list[Any]:
    """What a node hands on as it is, adds up, or multiplies by a constant; nothing of others."""
    name, below = node.name(), inputs(node)
    if name in _HANDS_ON:
        return below
    is_over = name == "DivBackward0" and node.next_functions[0][0] is None  # a constant over it
    return below if name in _SCALES and len(below) == 1 and not is_over else []


def _multiplied_by(node: Any) -> float | None:
    """The number by which a linear node multiplies; None where that is 0, or not known."""
    if node.name() in _HANDS_ON:
        return 1.0
    constant = _constant(node)
    return constant ** (-1 if node.name() == "DivBackward0" else 1) if constant else None


def sums_in(roots: Iterable[torch.Tensor]) -> set[int]:
    """The numbers of the nodes whose sum goes into one of these as it is, or times a constant."""
    nodes = reached([root.grad_fn for root in roots if root.grad_fn is not None], _linear_in)
    return {node._sequence_nr() for node in nodes if _linear_in(node)}


def _is_written(node: Any, context: RunContext) -> bool:
    call = context.call_of_node(node)
    place = place_of(call.user) if call is not None else None
    text = parsed(place.file) if place is not None else None
    found = expression(text, place) if text is not None else None
    if text is None or found is None:
        return True
    operands = (one for one in ast.iter_child_nodes(found) if isinstance(one, ast.expr))
    return any(number(text, one) is not None for one in operands)


def _given(grad: Any) -> float:
    values = plain(grad) if isinstance(grad, torch.Tensor) and grad.numel() == 1 else None
    return float(values) if values is not None else 1.0


def _constant(node: Any) -> float | None:
    """The number that the product's other factor is."""
    for name in ("self", "other"):
        value = saved(node, name)
        if value is not None and value.dim() == 0:
            return float(value)
    return None


def _terms(node: Any) -> int:
    """How many numbers were added up; 0 for what is no sum."""
    name: str = node.name()
    if name == "SumBackward0":
        return math.prod(int(size) for size in node._saved_self_sym_sizes)
    if getattr(node, "_saved_reduction", None) != _SUM or not node.next_functions:
        return 0
    source = node.next_functions[0][0]
    if source is None:
        return 0
    if type(source).__name__ == "AccumulateGrad":
        shape = tuple(source.variable.shape)
    else:
        shape = tuple(source._input_metadata[node.next_functions[0][1]].shape)
    if node_stem(name) in _PER_ROW:
        return math.prod((*shape[:1], *shape[2:]))
    return math.prod(shape)
