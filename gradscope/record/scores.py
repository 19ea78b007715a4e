"""Losses that take raw scores, or log-probabilities, and are given others of these, or
probabilities."""

import math
from dataclasses import replace
from typing import Any

import torch

from gradscope.facts import Scores
from gradscope.record.context import RunContext
from gradscope.record.graph import node_name
from gradscope.record.passes import BackwardPass

_MOST = 8  # places
_ROUNDED = 1e-3  # above 0: log-probabilities in half precision
_FARTHEST = 4  # views between the two
_LIKELIHOODS = ("NllLossBackward0", "NllLoss2DBackward0")
_DIVERGENCE = "MulBackward0"  # target times input, in `kl_div`, which is no op of its own
_MADE_BY = {
    "LogSoftmaxBackward0": "SoftmaxBackward0",
    "BinaryCrossEntropyWithLogitsBackward0": "SigmoidBackward0",
} | dict.fromkeys((*_LIKELIHOODS, _DIVERGENCE), "SoftmaxBackward0")
_KL_DIV = torch.nn.functional.kl_div.__code__


class GivenScores:
    """What the graphs of the steps show that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._kept: dict[object, Scores] = {}  # by place
        # The classes of likelihoods that read raw scores, in the pass that runs, which frees these.
        self._raw: dict[Any, int] = {}

    @property
    def found(self) -> tuple[Scores, ...]:
        return tuple(self._kept.values())

    def before_backward(self, one: BackwardPass) -> None:
        likelihoods = (node for node in one.above if type(node).__name__ in _LIKELIHOODS)
        self._raw = {
            node: node._saved_self.shape[1 if node._saved_self.dim() > 1 else 0]
            for node in likelihoods
            if _reads_scores(node)
        }

    def after_backward(self, one: BackwardPass) -> None:
        for node in one.above if len(self._kept) < _MOST else ():
            name = type(node).__name__
            wanted = _MADE_BY.get(name)
            is_divergence = name == _DIVERGENCE and self._is_in_kl_div(node)
            if wanted is None or (name == _DIVERGENCE and not is_divergence):
                continue
            if (made := self._maker(node, -1 if is_divergence else 0)) is None:
                continue
            along = _along(node) if name in _LIKELIHOODS else None
            logarithms = is_divergence or name in _LIKELIHOODS
            if node in self._raw and along is None:
                made = node
            elif along is None and (node_name(made) != wanted or not _is_along_one(node, made)):
                continue
            call, given = self._context.call(node), self._context.call(made)
            if call is not None and given is not None:
                classes = self._raw.get(node, 2)
                if hasattr(made, "_saved_dim"):
                    classes = made._input_metadata[0].shape[_dim(made)]
                taken = replace(call, op="kl_div") if is_divergence else call
                step, raw = self._context.step, made is node
                fact = Scores(given, taken, step, classes, logarithms, along, raw)
                self._kept.setdefault(given.location, fact)

    def _is_in_kl_div(self, node: Any) -> bool:
        note = self._context.call_of_node(node)
        return note is not None and any(code is _KL_DIV for code, _ in note.inner)

    def _maker(self, node: Any, position: int) -> Any:
        """What made the operand at that position, views left out."""
        for _ in range(_FARTHEST):
            node = node.next_functions[position][0] if node.next_functions else None
            position = 0
            note = self._context.call_of_node(node) if node is not None else None
            if note is None or not note.info.view:
                break
        return node


def _along(node: Any) -> int | None:
    """The dimension along which a log_softmax has made what a likelihood reads, where that has its
    classes along another one."""
    made = node.next_functions[0][0]
    if made is None or node_name(made) != "LogSoftmaxBackward0":
        return None
    classes = 1 if len(made._input_metadata[0].shape) > 1 else 0
    return _dim(made) if _dim(made) != classes else None


def _reads_scores(node: Any) -> bool:
    """Whether a likelihood reads what is no log-probability, which none above 0 is, and no
    probability either."""
    given = node._saved_self
    if not given.numel():
        return False
    least, most = map(float, given.aminmax())
    return math.isfinite(most) and most > _ROUNDED and (most > 1.0 or least < -_ROUNDED)


def _is_along_one(node: Any, made: Any) -> bool:
    """Whether both are along the same dimension, as far as they have one."""
    dims = [_dim(one) for one in (node, made) if hasattr(one, "_saved_dim")]
    return len(set(dims)) < 2


def _dim(node: Any) -> int:
    """The dimension, which a node keeps without its sign."""
    dim: int = node._saved_dim
    return (dim - 2**64 if dim >= 2**63 else dim) % len(node._input_metadata[0].shape)
