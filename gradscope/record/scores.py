"""Losses that take raw scores, or log-probabilities, and are given others of these, or
probabilities; and losses that compare what has bounds with targets beyond them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from gradscope.facts import Scores, Unreached
from gradscope.record.context import RunContext
from gradscope.record.finite import plain
from gradscope.record.graph import node_name, saved
from gradscope.record.passes import BackwardPass

_MOST = 8  # places
_ROUNDED = 1e-3  # above 0: log-probabilities in half precision
_COMPARE = ("MseLossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0")
_BOUNDS = {
    "ReluBackward0": (0.0, math.inf),
    "SigmoidBackward0": (0.0, 1.0),
    "SoftmaxBackward0": (0.0, 1.0),
    "TanhBackward0": (-1.0, 1.0),
}
_BEYOND = 0.25  # of the targets: fewer may be noise around a bound
_NEAR = 0.01  # of the range of the targets
_FARTHEST = 4  # views between the two
_LIKELIHOODS = ("NllLossBackward0", "NllLoss2DBackward0")
# With their classes along the last dimension, for lengths that are numbers and for tensors of them.
_ALIGNMENTS = ("CtcLossBackward0", "CtcLossBackward1")
_DIVERGENCE = "MulBackward0"  # target times input, in `kl_div`, which is no op of its own
_MADE_BY = {
    "LogSoftmaxBackward0": "SoftmaxBackward0",
    "BinaryCrossEntropyWithLogitsBackward0": "SigmoidBackward0",
} | dict.fromkeys((*_LIKELIHOODS, *_ALIGNMENTS, _DIVERGENCE), "SoftmaxBackward0")
_KL_DIV = torch.nn.functional.kl_div.__code__


class GivenScores:
    """What the graphs of the steps show that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._kept: dict[object, Scores] = {}  # by place
        self._unreached: dict[object, Unreached] = {}  # likewise

    @property
    def found(self) -> tuple[Scores, ...]:
        return tuple(self._kept.values())

    @property
    def unreached(self) -> tuple[Unreached, ...]:
        return tuple(self._unreached.values())

    def before_backward(self, one: BackwardPass) -> None:
        """What is told by tensors that the pass frees."""
        for node in one.above if len(self._kept) + len(self._unreached) < _MOST else ():
            name = type(node).__name__
            if name in (*_LIKELIHOODS, *_ALIGNMENTS):
                given = saved(node, "log_probs" if name in _ALIGNMENTS else "self")
                if given is not None and _are_scores(given):
                    dim = -1 if name in _ALIGNMENTS else _dim_of_classes(given.shape)
                    classes = given.shape[dim]
                    self._keep(node, node, classes, raw=True)
            elif name in _COMPARE:
                self._look_at_targets(node, one)

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
            if along is None and (node_name(made) != wanted or not _is_along_one(node, made)):
                continue
            shape = made._input_metadata[0].shape
            classes = shape[_dim(made)] if hasattr(made, "_saved_dim") else 2
            self._keep(node, made, classes, along)

    def _keep(
        self, node: Any, made: Any, classes: int, along: int | None = None, *, raw: bool = False
    ) -> None:
        name = type(node).__name__
        call, given = self._context.call(node), self._context.call(made)
        if call is not None and given is not None:
            taken = replace(call, op="kl_div") if name == _DIVERGENCE else call
            logarithms = name in (*_LIKELIHOODS, *_ALIGNMENTS, _DIVERGENCE)
            fact = Scores(given, taken, self._context.step, classes, logarithms, along, raw)
            self._kept.setdefault(given.location, fact)

    def _look_at_targets(self, node: Any, one: BackwardPass) -> None:
        made = self._maker(node, 0)
        low, high = _BOUNDS.get(node_name(made) if made is not None else "", (None, None))
        given = saved(node, "target") if low is not None else None
        target = plain(given) if given is not None else None
        if low is None or high is None or target is None or not target.numel():
            return
        near = _NEAR * float(target.max() - target.min())
        share = float(((target < low - near) | (target > high + near)).float().mean())
        call, maker = self._context.call(node), self._context.call(made)
        if share < _BEYOND or call is None or maker is None:
            return
        alike = (other for other in one.above if type(other) is type(made))
        alone = [*map(self._caller, alike)].count(self._caller(made)) < 2
        fact = Unreached(maker, call, self._context.step, low, high, share, alone)
        self._unreached.setdefault(maker.location, fact)

    def _caller(self, node: Any) -> tuple[object, ...]:
        """The place that calls an op, and the module that runs it."""
        note = self._context.call_of_node(node)
        if note is None:
            return ()
        return note.user, id(note.module.module) if note.module is not None else None

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
    classes = _dim_of_classes(made._input_metadata[0].shape)
    return _dim(made) if _dim(made) != classes else None


def _dim_of_classes(shape: Sequence[int]) -> int:
    """Of what a likelihood reads."""
    return 1 if len(shape) > 1 else 0


def _are_scores(given: torch.Tensor) -> bool:
    """Whether what a likelihood reads is no log-probability, which none above 0 is, and no
    probability either."""
    values = plain(given)
    if values is None or not values.numel():
        return False
    least, most = map(float, values.aminmax())
    return math.isfinite(most) and most > _ROUNDED and (most > 1.0 or least < -_ROUNDED)


def _is_along_one(node: Any, made: Any) -> bool:
    """Whether both are along the same dimension, as far as they have one."""
    dims = [_dim(one) for one in (node, made) if hasattr(one, "_saved_dim")]
    return len(set(dims)) < 2


def _dim(node: Any) -> int:
    """The dimension, which a node keeps without its sign."""
    dim: int = node._saved_dim
    return (dim - 2**64 if dim >= 2**63 else dim) % len(node._input_metadata[0].shape)
