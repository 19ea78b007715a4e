"""How a function reads its inputs, by the autograd graph of its loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradscope.ops.traits import Trait, has, key

_BY_HAND = {"exp", "sum", "div"}  # the ops of a softmax that is written out


@dataclass(frozen=True, slots=True)
class Reads:
    """Names of inputs: `scores` reach the loss through a softmax and on no other way, so that -inf
    is an ordinary value of theirs, by which masks hide them; `factors` are multiplied with others.
    """

    scores: frozenset[str] = frozenset()
    factors: frozenset[str] = frozenset()


def reads(loss: Tensor, leaves: Mapping[str, Any]) -> Reads:
    """`leaves` are the inputs by name; those without a gradient are in neither set."""
    nodes = nodes_of(loss)
    by_hand = set(map(_key, nodes)) >= _BY_HAND
    names = {id(leaf): name for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
    ways: dict[str, set[bool]] = {}
    factors = set()
    seen: set[tuple[Any, bool]] = set()
    waiting = [(loss.grad_fn, False)]
    while waiting:
        node, behind = waiting.pop()
        if node is None or (node, behind) in seen:
            continue
        seen.add((node, behind))
        name = names.get(id(getattr(node, "variable", None)))
        if name is not None:
            ways.setdefault(name, set()).add(behind)
        behind |= has(type(node).__name__, Trait.SOFTMAX) or (by_hand and _key(node) == "exp")
        below = [one for one, _ in node.next_functions]
        waiting += [(one, behind) for one in below]
        if has(type(node).__name__, Trait.MULTIPLIES):
            factors |= {names.get(id(_behind_copies(one))) for one in below}
    scores = (name for name, found in ways.items() if found == {True})
    return Reads(frozenset(scores), frozenset(name for name in factors if name is not None))


def _behind_copies(node: Any) -> object:
    """The leaf whose elements a node hands on, if it is one's."""
    while node is not None and has(type(node).__name__, Trait.COPIES):
        node = node.next_functions[0][0]
    return getattr(node, "variable", None)


def nodes_of(loss: Tensor) -> list[Any]:
    """The graph of a loss."""
    seen: dict[Any, None] = {}
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen[node] = None
            waiting += [edge[0] for edge in node.next_functions]
    return list(seen)


def grads_are_finite(loss: Tensor) -> bool:
    """Of every leaf that the loss depends on, parameters of the function's own model included."""
    nodes = nodes_of(loss)
    leaves = {id(node.variable): node.variable for node in nodes if hasattr(node, "variable")}
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return all(grad is None or bool(torch.isfinite(grad).all()) for grad in grads)


def _key(node: Any) -> str:
    return key(type(node).__name__)
