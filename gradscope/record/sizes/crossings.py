"""What is measured at the nodes of one backward pass: the norm of the gradient that each takes and
hands on, and that of the result which the forward pass had there.

Only at the few steps that are inspected: a hook at every node costs about a tenth of a step.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gradscope.facts import Activation, Call, NoGradient
from gradscope.ops.traits import Trait, has
from gradscope.record import finite
from gradscope.record.context import RunContext
from gradscope.record.finite import plain
from gradscope.record.graph import consumers, dim_of, node_name, saved, shape_of
from gradscope.record.journal import Note, to_call
from gradscope.record.sites import instruction_of
from gradscope.record.sizes.steep import SteepInput, side_of_divisor, steepest
from gradscope.record.tracing import computes_values, unobserved

MOST_NODES = 100_000  # of a graph that are measured, the nearest to the loss first
# What they save of what they divide by.
_DIVISORS = {"DivBackward0": "other"} | dict.fromkeys(
    ("NativeBatchNormBackward0", "CudnnBatchNormBackward0", "BatchNormBackward0"), "running_var"
)
_NEAREST = 1  # as `torch.nn.functional.grid_sample` hands "nearest" to its op


def norm_of(tensor: torch.Tensor) -> float:
    """The L2 norm of what can be looked at."""
    values = plain(tensor)
    return finite.norm_of(values) if values is not None and values.numel() else 0.0


@dataclass(slots=True)
class Crossing:
    """One node of the graph in one backward pass. `out` is the norm of the gradient that came
    in, `into` those that it passed on, one an input (None: no gradient flows there). `below` are
    the positions of the crossings that take them, `leaves` the leaves, as index of the input ->
    position. `note` is of the forward call that made the node, where that is known, `place` what
    makes two crossings the same computation, `selection` what the call leaves out at every step."""

    name: str
    seq: int
    place: object = None
    module: str | None = None
    flat: NoGradient | None = None  # why its slope is 0, where that is known of it alone
    # Of a softmax over one element: the dimensions of several, but for the first, a batch's.
    dims: tuple[int, ...] = ()
    out: float | None = None
    into: tuple[float | None, ...] = ()
    half: tuple[bool, ...] = ()  # whether numbers of a half type were passed on
    full: bool = False  # no element of the gradient that came in is 0; asked of selections alone
    steep: SteepInput | None = None  # where it handed on far more than came in
    side: float | None = None  # the sign of the one number that it divided by
    below: dict[int, int] = field(default_factory=dict)
    leaves: dict[int, int] = field(default_factory=dict)
    note: Note | None = None
    selection: object = None

    @property
    def call(self) -> Call:
        if self.note is None:
            return Call(op=self.name.removesuffix("Backward0").lower(), node=self.name)
        return to_call(self.note, self.seq, self.name)

    @property
    def gain(self) -> float:
        """The largest norm that it passed on over the one that came in."""
        given = max((norm for norm in self.into if norm is not None), default=0.0)
        return given / self.out if self.out else 0.0

    def is_zero_into(self, edge: int) -> bool:
        """Whether it took a gradient and passed on exactly zero to an input."""
        is_given = self.out is not None and self.out > 0
        return is_given and edge < len(self.into) and not self.into[edge]


def above(at: int, crossings: Sequence[Crossing]) -> Iterator[int]:
    """The positions of those that hand their gradient to the one at a position."""
    return (place for place, one in enumerate(crossings) if at in one.below.values())


class Crossings:
    """Hooks the nodes that the roots reach, for one backward pass: `found` has each before those
    below it, and not all of a graph of more than `MOST_NODES`, which `is_whole` says. `nodes` and
    `variables`, the leaves, are those of the whole graph. `close` removes the hooks."""

    def __init__(
        self, roots: Sequence[Any], context: RunContext, selections: Mapping[int, object] | None
    ) -> None:
        """`selections` are what calls leave out, by sequence number; None where the forward pass
        was not watched."""
        self.found: list[Crossing] = []
        self.nodes = _topological(roots)
        leaves = [node for node in self.nodes if hasattr(node, "variable")]
        nodes = [node for node in self.nodes if not hasattr(node, "variable")]
        self.is_whole = len(nodes) <= MOST_NODES
        del nodes[MOST_NODES:]
        self.variables: list[torch.Tensor] = [node.variable for node in leaves]
        self._hooks: list[Any] = []
        at = {node: position for position, node in enumerate(nodes)}
        leaf_at = {node: position for position, node in enumerate(leaves)}
        for node in nodes:
            seq = node._sequence_nr()
            crossing = Crossing(node_name(node), seq)
            if selections is not None and (note := context.journal.call_of(seq)) is not None:
                crossing.note, crossing.selection = note, selections.get(seq)
                crossing.place = instruction_of(note.user)
                crossing.module = context.names.module(note.module) if note.user else None
            for position, (below, _) in enumerate(node.next_functions):
                if below in at:
                    crossing.below[position] = at[below]
                elif below in leaf_at:
                    crossing.leaves[position] = leaf_at[below]
            taken = node.next_functions
            if len({*taken}) < len(taken) and has(crossing.name, Trait.SUBTRACTS):
                crossing.flat = NoGradient.ITSELF
            elif getattr(node, "_saved_interpolation_mode", None) == _NEAREST:  # grid_sampler
                crossing.flat = NoGradient.NEAREST
            self.found.append(crossing)
            self._hooks.append(node.register_hook(_measure(node, crossing)))

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _over_one(node: Any) -> tuple[int, ...] | None:
    if not has(node_name(node), Trait.SOFTMAX):
        return None
    shape, dim = shape_of(node), getattr(node, "_saved_dim", None)
    if not shape or not isinstance(dim, int) or shape[dim_of(node)] != 1:  # logsumexp has several
        return None
    return tuple(index for index, size in enumerate(shape) if index and size > 1)


def _divides_by_inf(node: Any) -> bool:
    role = _DIVISORS.get(node_name(node))
    divisor = saved(node, role) if role is not None else None
    values = plain(divisor) if divisor is not None else None
    return values is not None and bool(values.isinf().any())


def _measure(node: Any, crossing: Crossing) -> Callable[[Any, Any], None]:
    def hook(grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
        try:
            with unobserved():
                norms = [norm_of(grad) for grad in grad_outputs if grad is not None]
                into = tuple(None if grad is None else norm_of(grad) for grad in grad_inputs)
                selects = crossing.selection is not None
                full = selects and all(map(_has_no_zero, grad_outputs))
                steep = steepest(node, grad_outputs, grad_inputs, math.hypot(*norms), into)
                side = side_of_divisor(node)
                by_inf = 0.0 in into and _divides_by_inf(node)
                single = _over_one(node) if 0.0 in into else None
        except Exception:  # a tensor of a kind that we cannot read: a gap, not the program's fault
            return
        crossing.out = math.hypot(*norms)
        crossing.into = into
        crossing.full = full
        if by_inf or single is not None:
            crossing.flat = NoGradient.BY_INF if by_inf else NoGradient.SINGLE
            crossing.dims = single or ()
        crossing.steep, crossing.side = steep, side
        # bfloat16 reaches as far down as float32.
        crossing.half = tuple(
            grad is not None and grad.dtype is torch.float16 and grad.numel() > 0
            for grad in grad_inputs
        )

    return hook


def _has_no_zero(grad: torch.Tensor | None) -> bool:
    values = plain(grad) if grad is not None else None
    return values is not None and bool(values.all())


def _topological(roots: Sequence[Any]) -> list[Any]:
    """Every node before those that take its gradient, without recursion since graphs are deep."""
    waits = {node: len(above) for node, above in consumers(list(dict.fromkeys(roots))).items()}
    ready = [root for root in dict.fromkeys(roots) if not waits[root]]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for below, _ in node.next_functions:
            if below is not None:
                waits[below] -= 1
                if not waits[below]:
                    ready.append(below)
    return order


class Activations:
    """Norms of results by the sequence number of their node, for one forward pass.

    Holds 0-d tensors and no activation. Those of a GPU are read once, when backward is over, so
    that it is not waited for at each op.
    """

    def __init__(self) -> None:
        self._norms: dict[int, tuple[list[float | torch.Tensor], int]] = {}  # and of how many

    def note(self, seq: int, out: Any) -> None:
        """The result of the op that made a node; one that comes later under its number counts. Of
        several results the first: the others are statistics and masks, but for a list's."""
        results = out[:1] if isinstance(out, tuple) else out if isinstance(out, list) else [out]
        found = [plain(one) for one in results if isinstance(one, torch.Tensor)]
        values = [one for one in found if one is not None and one.numel()]
        if not values or not computes_values():
            return
        with unobserved():
            norms = [_norm(one) for one in values]
        self._norms[seq] = norms, sum(one.numel() for one in values)

    def read(self) -> dict[int, Activation]:
        """All norms, in one transfer a device."""
        waiting: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
        total = dict.fromkeys(self._norms, 0.0)
        for seq, (norms, _) in self._norms.items():
            for norm in norms:
                if isinstance(norm, torch.Tensor):
                    waiting.setdefault(norm.device, []).append((seq, norm))
                else:
                    total[seq] = math.hypot(total[seq], norm)
        for group in waiting.values():
            numbers = torch.stack([norm for _, norm in group]).tolist()
            for (seq, _), number in zip(group, numbers, strict=True):
                total[seq] = math.hypot(total[seq], number)
        return {seq: Activation(norm, self._norms[seq][1]) for seq, norm in total.items()}


def _norm(values: torch.Tensor) -> float | torch.Tensor:
    if values.device.type == "cpu":
        return norm_of(values)
    # Squares of float32 overflow from 1.8e19 on; not every device has float64.
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=wide)
    return norm
