"""Losses that take raw scores, or log-probabilities, and are given others of these, or
probabilities; weights over the wrong dimension; and losses that compare what has bounds with
targets beyond them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeGuard

import torch

from gradscope.facts import Call, Scores, Unreached
from gradscope.record.context import RunContext
from gradscope.record.finite import is_indirect, plain
from gradscope.record.graph import dim_of, inputs, node_name, saved, shape_of
from gradscope.record.passes import BackwardPass
from gradscope.record.weighted import over_samples

_MOST = 8  # places
_ROUNDED = 1e-3  # above 0: log-probabilities in half precision
_COMPARE = ("MseLossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0")
_OF_CHANCES = "BinaryCrossEntropyWithLogitsBackward0"
_OFF = 0.25  # beyond 0 and 1: what was interpolated may overshoot
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
_TAKE = ("GatherBackward0", "IndexBackward0")  # an element of each row, as that of its class
_NORMALISE = ("SoftmaxBackward0", "LogSoftmaxBackward0")
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
        self.found: dict[object, Scores] = {}  # by place
        self.unreached: dict[object, Unreached] = {}  # likewise

    def before_backward(self, one: BackwardPass) -> None:
        """What is told by tensors that the pass frees."""
        for node in one.above if len(self.found) + len(self.unreached) < _MOST else ():
            name = type(node).__name__
            if name in (*_LIKELIHOODS, *_ALIGNMENTS):
                given = saved(node, "log_probs" if name in _ALIGNMENTS else "self")
                if given is not None and _are_scores(given):
                    dim = -1 if name in _ALIGNMENTS else _dim_of_classes(given.shape)
                    classes = given.shape[dim]
                    self._keep(node, node, classes, raw=True)
            elif name in _COMPARE:
                self._look_at_targets(node, one)
            elif name == _OF_CHANCES and node._saved_reduction:  # else it may be masked afterwards
                self._look_at_chances(node)
            elif name in _TAKE:
                self._look_at_classes(node, one)
        for made, total, dim in over_samples(one) if len(self.found) < _MOST else ():
            self._keep(total, made, shape_of(made)[dim], (0, dim), weights=True)

    def after_backward(self, one: BackwardPass) -> None:
        for node in one.above if len(self.found) < _MOST else ():
            name = type(node).__name__
            wanted = _MADE_BY.get(name)
            is_divergence = name == _DIVERGENCE and self._is_in_kl_div(node)
            if wanted is None or (name == _DIVERGENCE and not is_divergence):
                continue
            if (made := self._maker(node, -1 if is_divergence else 0)) is None:
                continue
            along = _along(node, made) if name in _LIKELIHOODS else None
            if along is None and node_name(made) != wanted:
                continue
            classes = shape_of(made)[dim_of(made)] if hasattr(made, "_saved_dim") else 2
            self._keep(node, made, classes, along)

    def _keep(
        self,
        node: Any,
        made: Any,
        classes: int,
        along: tuple[int, int] | None = None,
        *,
        raw: bool = False,
        weights: bool = False,
    ) -> None:
        name = type(node).__name__
        call, given = self._context.call(node), self._context.call(made)
        if call is not None and given is not None:
            taken = replace(call, op="kl_div") if name == _DIVERGENCE else call
            logarithms = name in (*_LIKELIHOODS, *_ALIGNMENTS, _DIVERGENCE)
            step = self._context.step
            fact = Scores(given, taken, step, classes, logarithms, along, raw, weights)
            self.found.setdefault(given.location, fact)

    def _look_at_classes(self, node: Any, one: BackwardPass) -> None:
        """A logarithm of the probability of the class of each sample."""
        dim, others = _taken(node)
        before = list(islice(_before(node), _FARTHEST)) if others else []
        made = next((each for each in before if node_name(each) in _NORMALISE), None)
        if (
            made is None
            or (along := dim_of(made)) not in others
            or shape_of(made) != shape_of(before[0])
        ):
            return
        around = (*before[: before.index(made)], *islice(_after(node, one), _FARTHEST))
        if {"LogSoftmaxBackward0", "LogBackward0"} & {*map(node_name, (made, *around))}:
            self._keep(node, made, shape_of(made)[along], (along, dim))

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
        self._keep_unreached(maker, call, target, (low, high), share, alone=alone)

    def _look_at_chances(self, node: Any) -> None:
        """Targets of a binary cross entropy that are no chances, where its own weight is not 0."""
        given, weight = saved(node, "target"), saved(node, "weight")
        target, call = plain(given) if given is not None else None, self._context.call(node)
        if target is None or not target.numel() or call is None:
            return
        beyond = (target < -_OFF) | (target > 1.0 + _OFF)
        if weight is not None:
            beyond &= weight != 0
        share = float(beyond.float().mean())
        if share > 0:
            self._keep_unreached(call, call, target, (0.0, 1.0), share, alone=True)

    def _keep_unreached(
        self,
        made: Call,
        taken: Call,
        target: torch.Tensor,
        bounds: tuple[float, float],
        share: float,
        *,
        alone: bool,
    ) -> None:
        found = float(target.min()), float(target.max())
        labels = bool(((target == found[0]) | (target == found[1])).all())
        fact = Unreached(made, taken, self._context.step, *bounds, share, alone, found, labels)
        self.unreached.setdefault(made.location, fact)

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
            note = self._context.call_of_node(node)
            if note is None or not note.info.view:
                break
        return node


def _along(node: Any, made: Any) -> tuple[int, int] | None:
    """The dimension along which a log_softmax, `made`, has made what a likelihood reads, and that
    of its classes, where this is another one."""
    if node_name(made) != "LogSoftmaxBackward0":
        return None
    dims, read = (dim_of(made), _dim_of_classes(shape_of(made))), node.next_functions[0][0]
    # What `nll_loss` itself adds are dimensions of 1 behind these.
    is_as_read = read is made or shape_of(read)[:2] == shape_of(made)[:2]
    return dims if is_as_read and len(set(dims)) > 1 else None


def _taken(node: Any) -> tuple[int, frozenset[int]]:
    """The dimension along which an op takes one element, and those along which it takes another
    one each time; none where it takes several, or the same one of all."""
    if node_name(node) == "GatherBackward0":
        index, dim = saved(node, "index"), dim_of(node)
        if not _are_read(index) or index.shape[dim] != 1:
            return dim, frozenset()
        return dim, frozenset(at for at in range(index.dim()) if not _is_uniform(index, at))
    try:
        indices = dict(enumerate(node._saved_indices))
    except RuntimeError:  # they were freed
        return 0, frozenset()
    if not all(_are_read(one) and one.dim() == 1 for one in indices.values()):
        return 0, frozenset()
    counted = {
        at
        for at, one in indices.items()
        if one.equal(torch.arange(len(one), dtype=one.dtype, device=one.device))
    }
    classes = sorted(indices.keys() - counted)
    if len(classes) != 1 or _is_uniform(indices[classes[0]], 0):
        return 0, frozenset()
    return classes[0], frozenset(counted)


def _before(node: Any) -> Iterator[Any]:
    """What made the one operand of a node, what made that of this, ..."""
    while len(below := inputs(node)) == 1:
        (node,) = below
        yield node


def _after(node: Any, one: BackwardPass) -> Iterator[Any]:
    """The one reader of its result, that of what this gives, ..."""
    while len(users := one.above[node]) == 1:
        (node,) = users
        yield node


def _are_read(index: torch.Tensor | None) -> TypeGuard[torch.Tensor]:
    if type(index) is not torch.Tensor or index.is_meta or is_indirect(index):
        return False
    return index.dtype in (torch.int64, torch.int32)


def _is_uniform(values: torch.Tensor, dim: int) -> bool:
    return values.shape[dim] < 1 or values.equal(values.narrow(dim, 0, 1).expand_as(values))


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
