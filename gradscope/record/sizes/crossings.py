"""The graph of one backward pass, and the norm of the gradient at each of its nodes.

Only at the few steps that are inspected: a hook at every node costs about a tenth of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from gradscope.ops.names import node_stem
from gradscope.record import pieces
from gradscope.record.finite import plain
from gradscope.record.graph import node_name
from gradscope.record.sizes.growth import Crossing
from gradscope.record.tracing import unobserved

MOST_NODES = 100_000
_NEAREST = 1  # as `torch.nn.functional.grid_sample` hands "nearest" to its op


def norm_of(tensor: torch.Tensor) -> float:
    """The L2 norm of what can be looked at."""
    values = plain(tensor)
    return pieces.norm_of(values) if values is not None and values.numel() else 0.0


class Crossings:
    """Hooks every node that the roots reach, for one backward pass. `close` removes them all."""

    def __init__(
        self,
        roots: Sequence[Any],
        place_of: Callable[[int], tuple[object, str | None]],
        selecting: Collection[int] = (),
    ) -> None:
        """`place_of` tells of a sequence number where the call was made, and in which module;
        `selecting` are those of the calls that leave elements out."""
        self.found: list[Crossing] = []
        self.variables: list[torch.Tensor] = []
        self._hooks: list[Any] = []
        self.nodes, self.is_whole = _topological(roots)
        nodes = [node for node in self.nodes if not hasattr(node, "variable")]
        at = {node: position for position, node in enumerate(nodes)}
        leaf_at: dict[Any, int] = {}
        for node in self.nodes:
            if hasattr(node, "variable"):
                leaf_at[node] = len(self.variables)
                self.variables.append(node.variable)
        for node in nodes:
            seq = node._sequence_nr()
            place, module = place_of(seq)
            crossing = Crossing(node_name(node), seq, place, module, _takes_nearest(node))
            for position, (below, _) in enumerate(node.next_functions):
                if below in at:
                    crossing.below[position] = at[below]
                elif below in leaf_at:
                    crossing.leaves[position] = leaf_at[below]
            self.found.append(crossing)
            self._hooks.append(node.register_hook(_measure(crossing, seq in selecting)))

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _takes_nearest(node: Any) -> bool:
    is_sampler = node_stem(node_name(node)).startswith("GridSampler")
    return is_sampler and node._saved_interpolation_mode == _NEAREST


def _measure(crossing: Crossing, selects: bool) -> Callable[[Any, Any], None]:
    def hook(grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
        try:
            with unobserved():
                norms = [norm_of(grad) for grad in grad_outputs if grad is not None]
                into = tuple(None if grad is None else norm_of(grad) for grad in grad_inputs)
                full = selects and all(map(_has_no_zero, grad_outputs))
        except Exception:  # a tensor of a kind that we cannot read: a gap, not the program's fault
            return
        crossing.out = sum(norm * norm for norm in norms) ** 0.5
        crossing.into = into
        crossing.full = full
        # bfloat16 reaches as far down as float32.
        crossing.half = tuple(
            grad is not None and grad.dtype is torch.float16 for grad in grad_inputs
        )

    return hook


def _has_no_zero(grad: torch.Tensor | None) -> bool:
    values = plain(grad) if grad is not None else None
    return values is not None and bool(values.all())


def _topological(roots: Sequence[Any]) -> tuple[list[Any], bool]:
    """Every node before those that take its gradient, without recursion since graphs are deep; and
    whether that is the whole graph."""
    waits: dict[Any, int] = {}
    stack = list(dict.fromkeys(roots))
    seen = set(stack)
    while stack and len(seen) < MOST_NODES:
        node = stack.pop()
        for below, _ in node.next_functions:
            if below is None:
                continue
            waits[below] = waits.get(below, 0) + 1
            if below not in seen:
                seen.add(below)
                stack.append(below)
    ready = [root for root in dict.fromkeys(roots) if root not in waits]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for below, _ in node.next_functions:
            if below is not None and below in waits:
                waits[below] -= 1
                if not waits[below]:
                    ready.append(below)
    return order, not stack
