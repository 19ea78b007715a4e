"""Which call threw a value away, among the calls between an op and the loss.

Asked where a gradient of exactly 0 met an infinite slope. The zero was sent by a node on the way:
one that received something else and handed on 0. Whether that was a mask or only a factor that
happens to be 0 tells a masked branch from an ordinary singular derivative. And what a mask hid from
a loss without having hurt yet, which hazards are made of.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from gradscope.facts import Call, Event, Kind, Phase
from gradscope.ops.dtypes import finfo
from gradscope.ops.traits import Trait, discards, has
from gradscope.record.context import RunContext
from gradscope.record.events.provenance import storage_key
from gradscope.record.finite import numbers, part_at, plain, value_at
from gradscope.record.journal import Raw, to_call
from gradscope.record.oprun import NodeOps
from gradscope.record.passes import BackwardPass
from gradscope.record.sites import Site

_MOST = 8  # places of hidden values remembered a run: more are no longer read


def gradient_in(ops: NodeOps, made: frozenset[int] | None = None) -> torch.Tensor | None:
    """What the ops of a node read, did not make, and the node had not saved; its first output's
    gradient where there are several. None where no op of the node read it (a view's backward).
    After the backward pass what a node had saved is gone: then `made` are the identities of the
    tensors that the pass made; a gradient is one of those or a view of one."""
    metadata = getattr(ops.node, "_input_metadata", ())
    wanted = {tuple(item.shape) for item in metadata if hasattr(item, "shape")}
    for info, args, kwargs in ops.ops:
        for _, tensor in info.tensors(args, kwargs):
            shape = tuple(tensor.shape)
            if tensor._cdata in ops.made or (wanted and not ops.takes_in(shape, wanted)):
                continue
            if made is not None:
                if is_gradient(tensor, made):
                    return tensor
            elif storage_key(tensor) not in ops.saved_keys:
                values = plain(tensor)
                if values is not None and values.numel():
                    return tensor
    return None


def is_gradient(tensor: object, made: frozenset[int]) -> bool:
    if not isinstance(tensor, torch.Tensor):
        return False
    base = tensor._base
    return tensor._cdata in made or (base is not None and base._cdata in made)


class Element(NamedTuple):
    """The one at `place` of a gradient of `shape`."""

    place: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, tensor: torch.Tensor) -> float | None:
        """What broadcasting puts there; None where the shapes do not tell."""
        return value_at(tensor, *self)


def find_mask(
    node: Any,
    element: Element,
    above: dict[Any, list[Any]],
    history: Sequence[NodeOps],
    call_of: Callable[[Any], Call | None],
) -> Call | None:
    """The nearest call that discards an element of the gradient of a node.

    `above` maps a node to its consumers, `history` holds what ran in this backward pass. None
    where the zero is a factor like any other. Consumers whose gradient was not seen are judged
    by their op alone.
    """
    ran = {ops.node: ops for ops in history}
    made = frozenset().union(*(ops.made for ops in history)) if history else frozenset()
    seen = {node}
    waiting = deque((parent, node, element) for parent in above.get(node, ()))
    while waiting:
        current, below, element = waiting.popleft()
        if current in seen:
            continue
        seen.add(current)
        call = call_of(current)
        ops = ran.get(current)
        if call is not None and ops is not None:
            if _drops(call.op, ops, below, element, made):
                return call
            if _multiplies_by_zero(call.op, ops, below, element):
                continue  # whatever arrived
        gradient = gradient_in(ops, made) if ops is not None and above.get(current) else None
        came_as_zero = None if gradient is None else _is_zero_at(gradient, element)
        if not came_as_zero and call is not None:
            scales = has(call.op, Trait.MULTIPLIES) and _constant_factor(current)
            if discards(call.op) or scales:
                if ops is None or not _only_scales(call.op, ops, element, made):
                    return call
        if came_as_zero is False:
            continue  # this node handed on 0 because a factor of it is 0
        if gradient is not None and tuple(gradient.shape) != element.shape:
            element = Element((), tuple(gradient.shape))
        waiting.extend((parent, current, element) for parent in above.get(current, ()))
    return None


def _drops(op: str, ops: NodeOps, below: Any, element: Element, made: frozenset[int]) -> bool:
    """Whether a node hands 0 to the element of the branch `below` whatever it receives: its
    condition is against it, or its constant factor there is 0."""
    made = made - ops.made  # what the node made itself did not come into it
    for info, args, kwargs in ops.ops:
        named = dict(info.named_arguments(args, kwargs))
        if info.name == "where":
            taken = is_gradient(named.get("self"), made)
            if taken is is_gradient(named.get("other"), made) or not _feeds(ops.node, below, taken):
                continue
            condition = named["condition"]
            value = element.of(condition)
            if value is not None and bool(value) is not taken:
                return True
        elif info.name == "masked_fill" and is_gradient(named.get("self"), made):
            if element.of(named["mask"]):
                return True
        elif info.name == "threshold_backward":
            if element.of(named["self"]) == 0:
                return True
        elif info.name == "mul" and op == "mul" and _constant_factor(ops.node):
            factors = [
                f for f in (named.get("self"), named.get("other")) if not is_gradient(f, made)
            ]
            if any(isinstance(f, torch.Tensor) and element.of(f) == 0 for f in factors):
                return True
    return False


def _multiplies_by_zero(op: str, ops: NodeOps, below: Any, element: Element) -> bool:
    """Whether the slope towards the branch `below` is 0 at the element: of a product where the
    other factor is 0, of a quotient towards its denominator where the numerator is 0."""
    branch = [edge[0] for edge in ops.node.next_functions].index(below)
    ran = [args for info, args, _ in ops.ops if info.name == op and len(args) == 2]
    # The formulas serve the second operand first: `a / b`, of `-grad * (a / b) / b`; `grad * a`.
    if op == "div" and branch == 1 and ran:
        factor = ran[0][0]
    elif op == "mul" and len(ran) == 2 and not _constant_factor(ops.node):
        factor = ran[1 - branch][1]
    else:
        return False
    values = numbers(factor) if isinstance(factor, torch.Tensor) else None
    part = part_at(values, *element) if values is not None else None
    return part is not None and not bool(part.any())


def _feeds(node: Any, below: Any, first: bool) -> bool:
    """Whether the branch is the one that the first (else the second) gradient of a `where` goes to.
    Other nodes use `where` for their one gradient."""
    branches = [edge[0] for edge in node.next_functions]
    if len(branches) < 2:
        return True
    return branches[0 if first else 1] is below


def _is_zero_at(gradient: torch.Tensor, element: Element) -> bool | None:
    """None where some of it is 0, and a change of shape hides which."""
    values = numbers(gradient)
    if values is None or not values.numel():
        return False
    part = part_at(values, *element)
    zeros = (values if part is None else part) == 0
    is_zero = bool(zeros.all())
    return None if part is None and not is_zero and bool(zeros.any()) else is_zero


def _only_scales(op: str, ops: NodeOps, element: Element, made: frozenset[int]) -> bool:
    """Whether a product handed on what it received, times factors that are not 0 there: a zero
    below it is the sum of branches that cancel."""
    factors = [
        factor
        for info, args, kwargs in ops.ops
        if info.name == "mul" and op == "mul"
        for name, factor in info.named_arguments(args, kwargs)
        if name in ("self", "other") and not is_gradient(factor, made - ops.made)
    ]
    at = [element.of(f) if isinstance(f, torch.Tensor) else f for f in factors]
    return bool(at) and all(isinstance(value, int | float) and value != 0 for value in at)


def _constant_factor(node: Any) -> bool:
    """A factor without a gradient of its own may be a mask; one with a gradient is data."""
    return any(edge[0] is None for edge in node.next_functions)


def _is_no_zero(birth: Raw, way: Sequence[Raw]) -> bool:
    """Whether what the last op of a way made 0 of an inf is none of the number that was too large:
    `1 / x` of what a half holds, and `exp(-x / 1e5)`, but not `exp(-x)`, nor `1 / exp(x)`."""
    output, op = birth.fact.output, way[-1].note.info.name
    limits = finfo(output.dtype if output is not None else "")
    least = limits.max
    for one in way:
        is_root = one.note.info.name in ("sqrt", "rsqrt")
        least = one.factor * (math.sqrt(least) if is_root else least)
    size = 1 / least if has(op, Trait.DIVIDES) else math.exp(-least)
    is_made = has(op, Trait.DIVIDES | Trait.POSITIVE)
    return is_made and size > min(limits.tiny, finfo("float32").tiny)


class Hidden:
    """Keeps the births of inf and NaN of each step that something hid on the way to the loss, and
    those of which ops without a graph made a factor of 0.

    Looks at the graph only in steps with such a birth, of which healthy runs have none.
    """

    def __init__(self, context: RunContext, zeros: Callable[[], Mapping[int | None, Site]]) -> None:
        """`zeros` gives where a factor without a graph became 0, by the number of the product."""
        self._context, self._zeros = context, zeros
        # A birth and the way to what hid it, that one last, by place.
        self._births: dict[object, tuple[Raw, list[Raw]]] = {}

    def after_backward(self, one: BackwardPass) -> None:
        factors = self._zeros()
        is_any = bool(self._context.journal.events)
        found = list(self._candidates({*factors.values()})) if is_any else None
        if not found or len(self._births) >= _MOST:
            return
        on_the_way = {node._sequence_nr() for node in one.above}
        zeroed = {site for seq, site in factors.items() if seq in on_the_way}
        for birth, kill in found:
            place = birth.note.info.name, birth.note.user
            is_hidden = birth.in_graph and birth.seq in on_the_way and kill.seq in on_the_way
            is_factor = kill.seq is None and kill.note.user in zeroed
            if place in self._births or not (is_hidden or is_factor):
                continue
            above = list(self._context.journal.ancestors(kill.fact.id))
            way = above[: above.index(birth)][::-1]
            if is_hidden or _is_no_zero(birth, way):
                self._births[place] = birth, way

    def _candidates(self, zeroed: Collection[Site]) -> Iterator[tuple[Raw, Raw]]:
        """Births of this step and the op that hid each: a differentiable one, or at a place where
        values without a graph became 0."""
        journal, step = self._context.journal, self._context.step
        for kill in list(journal.events.values()):
            if kill.fact.kind is not Kind.KILL or kill.fact.step != step:
                continue
            if kill.seq is None and (kill.note.user not in zeroed or kill.node is not None):
                continue
            for raw in journal.ancestors(kill.fact.id):
                if raw.fact.kind is Kind.BIRTH and raw.fact.phase is Phase.FORWARD:
                    yield raw, kill

    def events(self, explained: Collection[int]) -> tuple[Event, ...]:
        """The births that lead to no symptom, first come first."""
        journal = self._context.journal
        kept = [pair for pair in self._births.values() if pair[0].fact.id not in explained]
        found = []
        for birth, way in kept[:_MOST]:
            path = tuple(to_call(one.note, one.seq) for one in way)
            found.append(replace(journal.freeze(birth), hidden_by=path[-1], path=path))
        return tuple(found)
