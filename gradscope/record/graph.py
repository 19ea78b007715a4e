"""Ways through the autograd graph, walked without recursion."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

_MOST_NODES = 500_000


def node_name(node: Any) -> str:
    """`DivBackward0`; those written in C++ tell their namespace too."""
    name: str = node.name()
    return name.removeprefix("torch::autograd::")


def function_name(cls: type) -> str:
    """What a custom Function is called: by its module too where torch has an op of that name."""
    name = cls.__name__
    return f"{cls.__module__}.{name}" if hasattr(torch.ops.aten, name) else name


def consumers(roots: list[Any]) -> dict[Any, list[Any]]:
    """For each node that the roots reach, the nodes that hand it its gradient."""
    found: dict[Any, list[Any]] = {root: [] for root in roots}
    waiting = deque(roots)
    while waiting and len(found) < _MOST_NODES:
        node = waiting.popleft()
        for below, _ in node.next_functions:
            if below is None:
                continue
            if below not in found:
                found[below] = []
                waiting.append(below)
            found[below].append(node)
    return found


def path_to_root(node: Any, above: dict[Any, list[Any]]) -> list[Any]:
    """The shortest way from a node to a root, nearest first, the node itself left out: what came
    upon it first, going down from the roots, is the nearest to them."""
    path: list[Any] = []
    while parents := above.get(path[-1] if path else node):
        path.append(parents[0])
    return path


def leaves(above: dict[Any, list[Any]]) -> list[Any]:
    """The leaf tensors whose gradient the graph accumulates."""
    return [node.variable for node in above if hasattr(node, "variable")]
