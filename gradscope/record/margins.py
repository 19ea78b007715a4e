"""How near operands came to singular points, matrices to degenerate ones, and half precision to its
ends.

Costs a reduction for each op of the kind, so that only a preflight measures it. What counts is
what the gradient flows through; that is known once backward has run, from the graph.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from gradscope.facts import Approach, DistanceOf, Headroom, NotChecked, plural
from gradscope.ops import lookup
from gradscope.ops.display import spelled
from gradscope.ops.dtypes import finfo
from gradscope.ops.edges import Decomposition
from gradscope.ops.reach import reach, reach_of_matrix, singularity
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.finite import HALF, dtype_of, plain
from gradscope.record.graph import inputs, node_name
from gradscope.record.journal import UNRESOLVED, to_call
from gradscope.record.oprun import OpRun, flatten
from gradscope.record.passes import BackwardPass

_FREE = 4  # the part of half precision's range that is to stay free: a factor of so much
_MOST = 8  # places told of a run, of each kind
_LARGEST = 256  # the order of a matrix whose singular values are computed beside the program's
_MOST_MATRICES = 1024  # in a batch
_DEEPEST = 8  # ops from a guard to what it guards
_SMALL = 0.05  # from 0, 1 or -1 to the end of a clamp that is put there to keep off them


Fact = TypeVar("Fact", Approach, Headroom)


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
        known = lookup(op.info.name)
        matrix = known.matrix if known is not None else None
        near = _element(op) if matrix is None else self._matrix(op, matrix)
        seen = [one for one in (near, _headroom(op)) if one is not None]
        if seen:
            self._step[(op.seq or 0) - 1] = seen

    def _matrix(self, op: OpRun, wanted: Decomposition) -> _Seen | None:
        """The matrix nearest to a singular one, or with the nearest eigenvalues, if too near."""
        operand = dict(op.inputs()).get(wanted.argument)
        tensor = plain(operand) if operand is not None and operand.requires_grad else None
        if tensor is None or not tensor.numel() or tensor.is_meta:
            return None
        order, matrices = min(tensor.shape[-2:]), tensor.shape[:-2].numel()
        if order < 2:
            return None
        if order > _LARGEST or matrices > _MOST_MATRICES:
            size = f"{plural(matrices, 'matrix', 'matrices')} of order {order}"
            left_out = NotChecked(
                f"how near to singular the operand of `{spelled(op.info.name)}` is",
                f"{size}; at most {_MOST_MATRICES:,} of order {_LARGEST} are looked at",
            )
            self.not_checked[left_out] = None
            return None
        if wanted.values is None:
            measured, distances = DistanceOf.MATRIX, _from_singular(tensor)
        else:
            measured, distances = DistanceOf.VALUES, _gaps(flatten(op.out)[wanted.values])
        dtype, within = dtype_of(tensor), reach_of_matrix(dtype_of(tensor), order)
        place = (op.step, wanted.argument, dtype, 0.0)
        fact = _nearest(place, distances, distances, within, measured)
        return _Seen(fact) if fact is not None else None

    def after_backward(self, one: BackwardPass) -> None:
        """Keep what lies on the way from the loss, and was not guarded."""
        seen, self._step = self._step, {}
        for node, users in one.above.items() if seen else ():
            for found in seen.pop(node._sequence_nr(), ()):
                self._keep(node, users, found)

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
            edges = node.next_functions
            below = [edges[i][0] for i in one.operands if i < len(edges)]
            if any(self._is_kept_off(operand, fact) for operand in below):
                return
        key = (type(fact), note.info.name, note.user[:1])
        known = self._kept.get(key)
        if known is None or _badness(fact) > _badness(known):
            self._kept[key] = replace(fact, call=to_call(note, node._sequence_nr()))

    def _is_kept_off(self, operand: Any, fact: Approach) -> bool:
        """Whether something upstream keeps the operand from the singular point."""
        if fact.measured is DistanceOf.VALUES:
            return False  # a multiple of the identity moves all eigenvalues alike
        if fact.measured is DistanceOf.MATRIX and operand is not None:
            # A tensor without gradient was added to the matrix: `a + eps * torch.eye(n)`.
            note = self._context.call_of_node(operand)
            if note is not None and note.info.shifts:
                if any(below is None for below, _ in operand.next_functions):
                    return True
        return self._is_guarded(operand, fact.distance, _DEEPEST)

    def _is_guarded(self, node: Any, distance: float, depth: int) -> bool:
        """Whether the operand that `node` made cannot come any nearer than `distance`, as far as
        the graph shows: an epsilon was added to something that is not negative, or a clamp holds
        it."""
        if node is None or depth == 0:
            return False
        note = self._context.call_of_node(node)
        name = note.info.name if note is not None else ""
        # What whoever wrote it has chosen to replace what must not come through.
        # (Aten's name of the overload: `clamp.Tensor`.)
        by_tensor = note is not None and "Tensor" in note.info.overload
        if has(name, Trait.FILLS) or (has(name, Trait.BOUNDS) and (by_tensor or _holds(node))):
            return True
        constant = abs(note.constant) if note is not None and note.constant is not None else 0.0
        # Where it came nearer than the constant, what that was added to was negative: no guard.
        if 0 < constant and distance >= 0.99 * constant:
            return True
        below = inputs(node)
        if has(name, Trait.SUBTRACTS) and len(below) > 1:
            return False  # the difference of two guarded numbers may be anything
        guards = (self._is_guarded(one, distance, depth - 1) for one in below)
        return bool(below) and (all(guards) if name == "mul" else any(guards))

    def worst(self, kind: type[Fact]) -> tuple[Fact, ...]:
        """The nearest, or the least room, first, one a place."""
        found = [fact for fact in self._kept.values() if isinstance(fact, kind)]
        return tuple(sorted(found, key=_badness, reverse=True)[:_MOST])


def _element(op: OpRun) -> _Seen | None:
    """The element nearest to a singular point of the op, if too near."""
    arguments = dict(op.info.named_arguments(op.args, op.kwargs))
    exponent, counts = _exponent(arguments)
    point = singularity(op.info.name, exponent)
    if point is None or arguments.get("eps") is not None:  # `logit(eps)` clamps by itself
        return None
    inputs = op.inputs()
    operands = [i for i, (name, _) in enumerate(inputs) if name in (point.argument, point.beside)]
    if not any(inputs[i][1].requires_grad for i in operands):
        return None  # a number, or data: no gradient pushes it any nearer
    operand = inputs[operands[0]][1]
    before = op.before if operands[0] == 0 else None
    tensor = plain(operand if before is None else before)
    if tensor is None or not tensor.is_floating_point() or not tensor.numel():
        return None
    node = operand.grad_fn
    difference = node is not None and has(node_name(node), Trait.SUBTRACTS)
    within = reach(dtype_of(tensor), point.margin, difference=difference)
    measured = DistanceOf.PAIR if point.beside else DistanceOf.ELEMENT
    values = tensor.detach()
    found = []
    for at in point.points:
        distances = (values.double() - at).abs()
        if point.beside:
            distances = torch.hypot(distances, arguments[point.beside].detach().double())
        distances = torch.where(torch.as_tensor(counts), distances, math.inf)
        place = (op.step, point.argument, dtype_of(tensor), at)
        found.append(_nearest(place, values, distances, within, measured))
    facts = [fact for fact in found if fact is not None]
    return _Seen(min(facts, key=lambda fact: fact.distance), tuple(operands)) if facts else None


def _nearest(
    place: tuple[int, str, str, float],
    values: torch.Tensor,
    distances: torch.Tensor,
    within: float,
    measured: DistanceOf,
) -> Approach | None:
    """What is nearest to a point (`place`: step, operand, dtype, point), if that is within reach.
    At the point itself it has broken, or is hidden: there are other rules for both."""
    distances = torch.where(distances > 0, distances, math.inf)
    at = distances.argmin()
    nearest = distances.reshape(-1)[at].item()
    if not nearest < within:
        return None
    value = values.expand_as(distances).reshape(-1)[at].item()
    near, numel = int((distances < within).sum()), distances.numel()
    return Approach(UNRESOLVED, *place, value, nearest, within, near, numel, measured)


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


def _headroom(op: OpRun) -> _Seen | None:
    outputs = [out for out in flatten(op.out) if out.dtype in HALF and out.numel()]
    tensor = plain(outputs[0]) if outputs else None
    if tensor is None or op.info.skip:
        return None
    sizes = tensor.detach().float().abs()
    sizes = sizes[torch.isfinite(sizes)]
    largest = sizes.max().item() if sizes.numel() else 0.0
    ends = finfo(dtype_of(tensor))
    if largest > ends.max / _FREE:
        limit, near = ends.max, int((sizes > ends.max / _FREE).sum())
    elif 0 < largest < ends.tiny:
        limit, near = ends.tiny, int((sizes > 0).sum())
    else:
        return None
    dtype, count = dtype_of(tensor), tensor.numel()
    return _Seen(Headroom(UNRESOLVED, op.step, dtype, largest, limit, near, count))


def _badness(fact: Approach | Headroom) -> float:
    if isinstance(fact, Approach):
        return fact.reach / fact.distance
    upper = fact.largest > fact.limit / _FREE and fact.limit > 1
    return fact.largest / fact.limit if upper else fact.limit / fact.largest


def _holds(node: Any) -> bool:
    """Whether a clamp ends just beside 0, 1 or -1, and not at it: `clamp(min=0)` guards nothing."""
    ends = [getattr(node, name, None) for name in ("_saved_min", "_saved_max")]
    numbers = [float(end) for end in ends if isinstance(end, int | float)]
    return any(0 < abs(abs(number) - at) <= _SMALL for number in numbers for at in (0.0, 1.0))


def _from_singular(tensor: torch.Tensor) -> torch.Tensor:
    """The smallest singular value of each matrix, relative to the largest: 1 / condition."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    values = torch.linalg.svdvals(tensor.detach().to(wide))
    relative: torch.Tensor = values[..., -1] / values[..., 0]
    return relative


def _gaps(values: torch.Tensor) -> torch.Tensor:
    """The smallest distance of two values of each matrix, relative to the largest magnitude."""
    values = values.detach().to(torch.complex128 if values.is_complex() else torch.float64)
    gaps = (values[..., None] - values[..., None, :]).abs()
    gaps.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    nearest: torch.Tensor = gaps.amin((-2, -1))
    return nearest / values.abs().amax(-1)
