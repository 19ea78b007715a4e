"""Parts of the graph that autograd refused to run through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gradscope.record import graph

Nodes = dict[Any, list[Any]]  # with the nodes above each


def withheld(node: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """What a node has saved and does not hand out any more: with the tensor where that was changed,
    without where it was freed."""
    prefix = "_raw_saved_"
    for name in dir(type(node)):
        if not name.startswith(prefix):
            continue
        role = name.removeprefix(prefix)
        try:
            if role == "tensors":  # of a custom Function
                node.saved_tensors  # noqa: B018 - what it raises is the answer
            else:
                getattr(node, f"_saved_{role}")
        except RuntimeError:
            yield from ((role, one) for one in _held(node, name))


def _held(node: Any, name: str) -> Iterator[torch.Tensor | None]:
    """The tensors of a saved variable, or of a list of them, whatever their versions."""
    try:
        raw = getattr(node, name)
        yield from [one.data for one in (raw if isinstance(raw, tuple | list) else (raw,))]
    except RuntimeError:  # freed
        yield None


def up(nodes: set[Any], above: Nodes) -> set[Any]:
    """The nodes, and all that hand them a gradient."""
    found, waiting = set(nodes), list(nodes)
    while waiting:
        for one in above[waiting.pop()]:
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found


def is_older(node: Any, until: int) -> bool:
    """Whether it was made before the node with that number. Those of leaves are of no time."""
    return hasattr(node, "variable") or node._sequence_nr() < until


def ends(part: set[Any], above: Nodes) -> Iterator[Any]:
    """The nodes of a part of a graph by which the rest of it, or the loss, leads there."""
    for node in part:
        if not hasattr(node, "variable") and not (above[node] and part.issuperset(above[node])):
            yield node


def down(node: Any) -> set[Any]:
    return set(graph.consumers([node]))
