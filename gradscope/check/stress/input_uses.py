"""How a function reads its inputs, by the autograd graph of its loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradscope.ops.traits import Trait, has


@dataclass(frozen=True, slots=True)
class Reads:
    """Names of inputs: `scores` reach the loss through a softmax and on no other way, so that -inf
    is an ordinary value of theirs, by which masks hide them; `factors` are multiplied with others.
    """

    scores: frozenset[str] = frozenset()
    factors: frozenset[str | None] = frozenset()


def reads(loss: Tensor, leaves: Mapping[str, Any]) -> Reads:
    """`leaves` are the inputs by name; those without a gradient are in neither set."""
    names = {id(leaf): name for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
    ways: set[tuple[str, bool]] = set()
    factors: set[str | None] = set()

    def below(at: tuple[Any, bool]) -> list[tuple[Any, bool]]:
        node, behind = at
        if (name := names.get(id(getattr(node, "variable", None)))) is not None:
            ways.add((name, behind))
        is_behind = behind or has(type(node).__name__, Trait.SOFTMAX)
        if has(type(node).__name__, Trait.MULTIPLIES):
            factors.update(names.get(id(_behind_copies(one))) for one in _inputs(node))
        return [(one, is_behind) for one in _inputs(node)]

    _reached((loss.grad_fn, False), below)
    scores = {name for name, behind in ways if behind and (name, False) not in ways}
    return Reads(frozenset(scores), frozenset(factors))


def _behind_copies(node: Any) -> object:
    """The leaf whose elements a node hands on, if it is one's."""
    while node is not None and has(type(node).__name__, Trait.COPIES):
        node = node.next_functions[0][0]
    return getattr(node, "variable", None)


def grads_are_finite(loss: Tensor) -> bool:
    """Of every leaf that the loss depends on, parameters of the function's own model included."""
    nodes = _reached(loss.grad_fn, _inputs)
    leaves = {id(node.variable): node.variable for node in nodes if hasattr(node, "variable")}
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return all(grad is None or bool(torch.isfinite(grad).all()) for grad in grads)


def _reached(start: Any, below: Callable[[Any], list[Any]]) -> list[Any]:
    found = {start: None}
    waiting = [start]
    while waiting:
        new = [one for one in below(waiting.pop()) if one not in found]
        found |= dict.fromkeys(new)
        waiting += dict.fromkeys(new)
    return list(found)


def _inputs(node: Any) -> list[Any]:
    return [one for one, _ in node.next_functions if one is not None]
