"""Which call threw a value away, among the calls between an op and the loss.

Asked where a gradient of exactly 0 met an infinite slope. The zero was sent by a node on the way:
one that received something else and handed on 0. Whether that was a mask or only a factor that
happens to be 0 tells a masked branch from an ordinary singular derivative.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradscope.facts import Call
from gradscope.record.finite import plain, value_at
from gradscope.record.grad_outputs import grad_output_of
from gradscope.record.spot import NodeOps

# Give a gradient of exactly 0 to every element that they did not choose.
CHOOSE = frozenset(
    "where masked_fill masked_select masked_scatter index index_put clamp clamp_min clamp_max minimum maximum "
    "fmin fmax max min amax amin nan_to_num relu threshold hardtanh triu tril gather take topk sort median "
    "nanmedian kthvalue nanmean nansum cummax cummin index_fill scatter max_pool2d_with_indices "
    "nll_loss_forward nll_loss nll_loss2d_forward nll_loss_nd smooth_l1_loss slice select narrow split "
    "split_with_sizes unbind chunk unsafe_split index_select diagonal native_dropout embedding copy".split()
)
# Multiply by something: a mask where that has no gradient of its own.
_MULTIPLY = frozenset("mul mm bmm dot addmm baddbmm matmul mv".split())
_MOST_NODES = 10_000


def find_mask(
    node: Any,
    index: tuple[int, ...],
    shape: tuple[int, ...],
    above: dict[Any, list[Any]],
    history: Sequence[NodeOps],
    call_of: Callable[[Any], Call | None],
) -> Call | None:
    """The nearest call that discards the element `index` (of a gradient of `shape`) of a node.

    `above` maps a node to its consumers, `history` holds what ran in this backward pass. None
    where the zero is a factor like any other. Consumers whose gradient was not seen are judged
    by their op alone.
    """
    ran = {ops.node: ops for ops in history}
    seen = {node}
    waiting = deque((parent, index, shape) for parent in above.get(node, ()))
    while waiting and len(seen) < _MOST_NODES:
        current, place, size = waiting.popleft()
        if current in seen:
            continue
        seen.add(current)
        call = call_of(current)
        gradient = grad_output_of(ran[current]) if current in ran else None
        if gradient is not None and _is_zero(gradient, place, size):
            new = (place, size) if tuple(gradient.shape) == size else ((), tuple(gradient.shape))
            waiting.extend((parent, *new) for parent in above.get(current, ()))
        elif call is not None and _discards(call.op, current):
            return call
        elif gradient is None:
            waiting.extend((parent, place, size) for parent in above.get(current, ()))
        # Otherwise this node received something and handed on 0 because a factor of it is 0.
    return None


def _is_zero(gradient: torch.Tensor, index: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    values = plain(gradient)
    if values is None or not values.numel():
        return False
    value = value_at(values, index, shape)
    return value == 0 if value is not None else not bool(values.any())


def _discards(op: str, node: Any) -> bool:
    if op in CHOOSE:
        return True
    return op in _MULTIPLY and any(edge[0] is None for edge in node.next_functions)
