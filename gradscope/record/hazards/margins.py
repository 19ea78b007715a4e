"""How near operands came to singular points, and half precision to its ends.

Costs a reduction for each op of the kind, so that only a preflight measures it. What counts is
what the gradient flows through; that is known once backward has run, from the graph.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradscope.facts import Approach, Call, DistanceOf, Headroom, NotChecked
from gradscope.ops import lookup
from gradscope.ops.dtypes import finfo
from gradscope.ops.reach import reach, singularity
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.finite import plain
from gradscope.record.graph import consumers, node_name
from gradscope.record.hazards.guards import has_constant_added, is_guarded
from gradscope.record.hazards.spectra import of_matrix
from gradscope.record.journal import to_call
from gradscope.record.oprun import OpRun, flatten

_FREE = 4  # the part of half precision's range that is to stay free: a factor of so much
_MOST = 8  # places told of a run, of each kind
_HALF = (torch.float16, torch.bfloat16)
_NOWHERE = Call("")


@dataclass(slots=True)
class _Seen:
    """A measurement, and where the node of its op takes the operands."""

    fact: Approach | Headroom
    operands: tuple[int, ...] = (0,)


class Margins:
    """Keeps the smallest margin of each place."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._step: dict[int, list[_Seen]] = {}  # of this step, by the op's sequence number
        self.not_checked: dict[NotChecked, None] = {}  # in order
        self._kept: dict[object, Approach | Headroom] = {}

    def measure(self, op: OpRun) -> None:
        """Look at the operands and the result of an op that made an autograd node."""
        seq = (op.seq or 0) - 1
        seen = [one for one in (self._approach(op), self._headroom(op)) if one is not None]
        if seen:
            self._step[seq] = seen

    def _approach(self, op: OpRun) -> _Seen | None:
        known = lookup(op.info.name)
        if known is not None and known.matrix is not None:
            fact = of_matrix(op, known.matrix, self._context.step)
            if isinstance(fact, NotChecked):
                self.not_checked[fact] = None
                return None
            return None if fact is None else _Seen(fact)
        arguments = dict(op.info.named_arguments(op.args, op.kwargs))
        exponent, counts = _exponent(arguments)
        point = singularity(op.info.name, exponent)
        if point is None or arguments.get("eps") is not None:  # `logit(eps)` clamps by itself
            return None
        inputs = op.inputs()
        operands = [
            i for i, (name, _) in enumerate(inputs) if name in (point.argument, point.beside)
        ]
        if not any(inputs[i][1].requires_grad for i in operands):
            return None  # a number, or data: no gradient pushes it any nearer
        place = operands[0]
        written = op.before is not None and place == 0
        tensor = plain(op.before if written and op.before is not None else inputs[place][1])
        if tensor is None or not tensor.is_floating_point() or not tensor.numel():
            return None
        dtype = str(tensor.dtype).removeprefix("torch.")
        difference = _is_difference(inputs[place][1].grad_fn)
        within = reach(dtype, point.margin, difference=difference)
        values = tensor.detach()
        found: Approach | None = None
        for at in point.points:
            distances = (values.double() - at).abs()
            if point.beside:
                distances = torch.hypot(distances, arguments[point.beside].detach().double())
            # At the point itself it has broken, or is hidden: there are other rules for both.
            distances = torch.where((distances > 0) & counts, distances, math.inf)
            nearest = distances.min().item()
            if not nearest < within or (found is not None and found.distance <= nearest):
                continue
            found = Approach(
                call=_NOWHERE,
                step=self._context.step,
                role=point.argument,
                dtype=dtype,
                point=at,
                value=values.expand_as(distances).reshape(-1)[distances.argmin()].item(),
                distance=nearest,
                reach=within,
                near=int((distances < within).sum()),
                numel=distances.numel(),
                measured=DistanceOf.PAIR if point.beside else DistanceOf.ELEMENT,
            )
        return None if found is None else _Seen(found, tuple(operands))

    def _headroom(self, op: OpRun) -> _Seen | None:
        outputs = [out for out in flatten(op.out) if out.dtype in _HALF and out.numel()]
        tensor = plain(outputs[0]) if outputs else None
        if tensor is None or op.info.skip:
            return None
        sizes = tensor.detach().float().abs()
        sizes = sizes[torch.isfinite(sizes)]
        largest = sizes.max().item() if sizes.numel() else 0.0
        dtype = str(tensor.dtype).removeprefix("torch.")
        ends = finfo(dtype)
        if largest > ends.max / _FREE:
            limit, near = ends.max, int((sizes > ends.max / _FREE).sum())
        elif 0 < largest < ends.tiny:
            limit, near = ends.tiny, int((sizes > 0).sum())
        else:
            return None
        step = self._context.step
        return _Seen(Headroom(_NOWHERE, step, dtype, largest, limit, near, tensor.numel()))

    def after_backward(self, graph: Collection[Any]) -> None:
        """Keep what lies on the way from the loss, and was not guarded."""
        seen, self._step = self._step, {}
        if not seen:
            return
        above = consumers(list(graph))
        for node, users in above.items():
            for one in seen.pop(node._sequence_nr(), ()):
                self._keep(node, users, one)

    def _keep(self, node: Any, users: list[Any], one: _Seen) -> None:
        note = self._context.journal.call_of(node._sequence_nr())
        if note is None:
            return
        fact = one.fact
        if isinstance(fact, Approach):
            op = lookup(note.info.name)
            matrix = op.matrix if op is not None else None
            if matrix is not None and matrix.values is not None:
                read = {at for user in users for below, at in user.next_functions if below == node}
                if read == {matrix.values}:
                    return  # the slope of the values themselves is regular
            below = [
                node.next_functions[i][0] for i in one.operands if i < len(node.next_functions)
            ]
            if any(self._is_guarded(operand, fact) for operand in below):
                return
        key = (type(fact), note.info.name, note.user[:1])
        known = self._kept.get(key)
        if known is None or _badness(fact) > _badness(known):
            self._kept[key] = replace(fact, call=to_call(note, node._sequence_nr()))

    def _is_guarded(self, operand: Any, fact: Approach) -> bool:
        if fact.measured is DistanceOf.VALUES:
            return False  # a multiple of the identity moves all eigenvalues alike
        if fact.measured is DistanceOf.MATRIX and has_constant_added(operand, self._context):
            return True
        return is_guarded(operand, fact.distance, self._context)

    def approaches(self) -> tuple[Approach, ...]:
        """The nearest first, one a place."""
        found = [fact for fact in self._kept.values() if isinstance(fact, Approach)]
        return tuple(sorted(found, key=_badness, reverse=True)[:_MOST])

    def headroom(self) -> tuple[Headroom, ...]:
        """The least room first, one a place."""
        found = [fact for fact in self._kept.values() if isinstance(fact, Headroom)]
        return tuple(sorted(found, key=_badness, reverse=True)[:_MOST])


def _badness(fact: Approach | Headroom) -> float:
    if isinstance(fact, Approach):
        return fact.reach / fact.distance
    upper = fact.largest > fact.limit / _FREE and fact.limit > 1
    return fact.largest / fact.limit if upper else fact.limit / fact.largest


def _is_difference(node: Any) -> bool:
    return node is not None and has(node_name(node), Trait.SUBTRACTS)


def _exponent(arguments: dict[str, Any]) -> tuple[float | None, Any]:
    """The power's exponent, the lowest of several, and where that matters: at exponents that are
    neither 0 nor at least 1."""
    value = arguments.get("exponent")
    if isinstance(value, torch.Tensor):
        exponents = plain(value)
        if exponents is None or exponents.is_meta or not exponents.numel():
            return None, True
        singular = (exponents < 1) & (exponents != 0)
        lowest = torch.where(singular, exponents, 1).min().item()
        return float(lowest), singular
    return (float(value) if isinstance(value, int | float) else None), True
