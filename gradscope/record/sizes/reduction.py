"""Whether a loss is a sum where a mean would have divided by the number of terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from gradscope.facts import Summed
from gradscope.record.sites import resolve
from gradscope.record.sizes.flow import Flow

_SUM = 2  # at::Reduction::Sum
_FEWEST = 8  # terms: over less, a sum and a mean are the same to a learning rate
_PER_ROW = ("NllLoss",)  # whose mean divides by the rows alone


def summed(roots: Sequence[torch.Tensor], flow: Flow) -> Summed | None:
    """The sum that the only root is, at most times a constant that is no 1 / N."""
    if len(roots) != 1:
        return None
    node: Any = roots[0].grad_fn
    weight = 1.0
    while node is not None and node.name() in ("MulBackward0", "NegBackward0"):
        before = [one for one, _ in node.next_functions if one is not None]
        if len(before) != 1:
            return None  # of two tensors that train
        if node.name() == "MulBackward0":
            constant = _constant(node)
            if constant is None:
                return None
            weight *= abs(constant)
        node = before[0]
    terms = _terms(node) if node is not None else 0
    if terms < _FEWEST or weight * terms < _FEWEST:
        return None
    call = flow.calls.get(node._sequence_nr())
    place = resolve(*call.user[0]) if call is not None and call.user else None
    return Summed(terms, call.info.name if call is not None else "sum", place)


def _constant(node: Any) -> float | None:
    """The number that the product's other factor is."""
    for name in ("self", "other"):
        raw = getattr(node, f"_raw_saved_{name}", None)
        if raw is None or getattr(raw, "unpack_hook", None) is not None:
            continue  # unpacking it would run the program's own hook once more
        value = getattr(node, f"_saved_{name}")
        if isinstance(value, torch.Tensor) and value.dim() == 0:
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
    if name.startswith(_PER_ROW):
        return math.prod((*shape[:1], *shape[2:]))
    return math.prod(shape)
