"""Operations that broadcasting has done with each element of a batch and every other one: a column
of shape (n, 1) and a row of shape (n,), of whose n * n results a loss is one number."""

import math
from collections.abc import Container
from dataclasses import replace
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from gradscope.facts import Broadcast, Operand
from gradscope.record.context import RunContext
from gradscope.record.events.measure import operand
from gradscope.record.graph import shape_of
from gradscope.record.journal import UNRESOLVED, Note, named_operands, to_call
from gradscope.record.passes import BackwardPass
from gradscope.record.schema import OpInfo
from gradscope.record.sites import Site, note_site

_MOST = 8  # places
_FARTHEST = 256  # nodes between the results and the number
# The views that keep dimensions.
_CUT = tuple(f"{op}Backward0" for op in ("Slice", "Split", "SplitWithSizes", "Narrow"))


class Broadcasts:
    """Those that are seen in a step, until its backward shows what became of them."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._step: dict[int, Broadcast] = {}  # of this step, by the op's sequence number
        self.found: dict[object, Broadcast] = {}  # by place
        # Of results without a graph: an advantage is computed before the steps that weight with
        # it.
        self._constants = WeakTensorKeyDictionary()
        self._made_at: dict[Site, Broadcast] = {}  # those behind these, by place

    def note(self, info: OpInfo, args: tuple[Any, ...], seq: int, frame: Any) -> None:
        """An op whose second argument is a tensor has made an autograd node."""
        first, second = args[:2]
        if not isinstance(first, torch.Tensor) or first.requires_grad == second.requires_grad:
            return  # pairs of what is trained alike are meant
        constant, other = (second, first) if first.requires_grad else (first, second)
        known = self._constants.get(constant)
        if known is not None and tuple(other.shape) in ((known.size,), (known.size, 1)):
            self._step[seq] = known
        elif (size := _crossed(first, second)) and len(self.found) < _MOST:
            operands = self._operands(info, args, frame)
            self._step[seq] = Broadcast(UNRESOLVED, self._context.step, size, operands)

    def note_constant(self, info: OpInfo, args: tuple[Any, ...], out: Any, frame: Any) -> None:
        """An op has made a square matrix, and no autograd node."""
        given = [one for one in args if isinstance(one, torch.Tensor)]
        known = next((one for one in map(self._constants.get, given) if one is not None), None)
        if known is None and len(given) == 2 and (size := _crossed(*given)):
            user, inner = note_site(frame)
            known = self._made_at.get(user)
            if known is None and len(self._made_at) < _MOST:
                call = to_call(Note(info, user, inner, self._context.module))
                operands = named_operands(call, self._operands(info, args, frame))
                known = Broadcast(call, self._context.step, size, operands)
                self._made_at[user] = known
        if known is not None and out.shape[0] == known.size:
            self._constants[out] = known

    def _operands(self, info: OpInfo, args: tuple[Any, ...], frame: Any) -> tuple[Operand, ...]:
        roles, both = info.argument_names[:2], map(_given, args[:2])
        return tuple(
            operand(role, one, self._context, frame=frame)
            for role, one in zip(roles, both, strict=False)
        )

    def after_backward(self, one: BackwardPass) -> None:
        """Keep those of which nothing but one number was made, on the way to the loss."""
        seen, self._step = self._step, {}
        for node in one.above if seen else ():
            fact = seen.get(node._sequence_nr())
            note = self._context.journal.call_of(node._sequence_nr()) if fact is not None else None
            made = _made(node, one, fact.size) if fact is not None else None
            if fact is None or note is None or made is None:
                continue
            met = {below for each in made - {node} for below, _ in each.next_functions} - made
            shapes = {other: shape_of(other) for other in met if other is not None}
            pairs = [other for other, shape in shapes.items() if math.prod(shape) == fact.size**2]
            # Where they meet other results of all pairs, as of a matrix product, these are meant.
            if not all(_is_made_of(other, seen) for other in pairs):
                continue
            fact = replace(fact, meets_columns=(fact.size, 1) in shapes.values())
            if fact.call is UNRESOLVED:
                call = to_call(note, node._sequence_nr())
                fact = replace(fact, call=call, operands=named_operands(call, fact.operands))
            self.found.setdefault(fact.call.location, fact)


def _crossed(first: torch.Tensor, second: torch.Tensor) -> int:
    """The size of a column and a row that an op pairs; 0 where they are none, or meant: whoever
    writes `x[:, None]` or `x.view(-1, 1)` means the pairs."""
    both = ((_given(one), one) for one in (first, second))
    if not (first.is_floating_point() and second.is_floating_point()):
        return 0  # indices are not paired: a class is looked up in the scores of its sample
    (column, stood), (row, _) = sorted(both, key=lambda pair: pair[0].dim(), reverse=True)
    if tuple(column.shape) != (row.numel(), 1) or row.dim() != 1 or len(row) < 2:
        return 0
    return len(row) if not _is_stood_up(stood) else 0


def _given(tensor: torch.Tensor) -> torch.Tensor:
    """What was expanded to a matrix, as a loss does by itself."""
    base = tensor._base
    expanded = [stride == 0 for stride in tensor.stride()] if base is not None else []
    if base is None or expanded not in ([True, False], [False, True]):
        return tensor
    with torch.no_grad():
        part = tensor[0] if expanded[0] else tensor[:, :1]
    return base if base.shape == part.shape else part  # which was a part of its base before


def _is_stood_up(tensor: torch.Tensor) -> bool:
    """Whether a column, expanded or not, was made one by a view. Whoever writes `x[:, None]` or
    `x.view(-1, 1)` means the pairs; a column of a matrix was one before, as where `chunk` takes a
    model's output apart, or a loop the rows of a batch."""
    base, node = tensor._base, tensor.grad_fn
    if node is not None and node.name() == "ExpandBackward0":
        node = node.next_functions[0][0]
    if base is None:
        return False
    if node is None:
        return base.dim() != 2 or base.shape[1] != 1
    return node is not base.grad_fn and node.name() not in (*_CUT, "AccumulateGrad")


def _made(node: Any, one: BackwardPass, size: int) -> set[Any] | None:
    """What is made of the results of a node, where each is dealt with by itself until all are one
    number; None where they are not."""
    waiting, seen = [node], set[Any]()
    while waiting and len(seen) < _FARTHEST:
        node = waiting.pop()
        numel = math.prod(shape_of(node))
        if numel == 1 or node in seen:
            continue
        seen.add(node)
        users = one.above.get(node, [])
        if numel != size * size or not users:
            return None
        waiting += users
    return None if waiting else seen


def _is_made_of(node: Any, noted: Container[int]) -> bool:
    """Whether an op that was noted lies before a node."""
    waiting, seen = [node], set[Any]()
    while waiting and len(seen) < _FARTHEST:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "_sequence_nr") and node._sequence_nr() in noted:
            return True
        waiting += (below for below, _ in node.next_functions)
    return False
