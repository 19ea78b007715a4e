"""Ways through the autograd graph, walked without recursion, and parts of it that autograd refused
to run through.

A graph is walked as a whole, however large: a limit would lose leaves. Going by a node takes a
small part of the time that the program took to make it."""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from gradscope.ops.traits import Trait, has

_DEEP = 2_000  # nodes that may be freed by recursion: a stack of a MiB has room for 4,000
_RAW = "_raw_saved_"  # before the name of what a node saves

Nodes = dict[Any, list[Any]]  # with the nodes above each


class SeenNodes:
    """The nodes that Python has seen of graphs whose roots are still alive, or were until lately.

    torch frees a graph without recursion, but for nodes that Python has seen once: each of them
    frees the next one, on the stack, which is full after some 40,000. Held here they outlive the
    program's own hold on the graph, and are let go from the roots down, one at a time.
    """

    def __init__(self) -> None:
        # A deque lets go of its items in their order, also when it is itself let go.
        self._graphs: list[tuple[list[weakref.ref[torch.Tensor]], deque[Any]]] = []

    def hold(self, roots: Sequence[torch.Tensor], nodes: Sequence[Any]) -> None:
        """Of the graph of one backward pass, each node before those below it."""
        self._graphs = [
            held for held in self._graphs if any(root() is not None for root in held[0])
        ]
        if len(nodes) > _DEEP:
            self._graphs.append(([weakref.ref(root) for root in roots], deque(nodes)))


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
    while waiting:
        node = waiting.popleft()
        for below, _ in node.next_functions:
            if below is None:
                continue
            if below not in found:
                found[below] = []
                waiting.append(below)
            found[below].append(node)
    return found


def are_straight(values: Sequence[Any], gradients: Sequence[Any]) -> bool:
    """Whether the gradients of some values have a graph and are 0 at every element, where the
    values are themselves slopes of straight lines."""
    found = [one for one in gradients if isinstance(one, torch.Tensor)]
    if not found or not all(one.grad_fn is not None and not one.any() for one in found):
        return False
    made = [one.grad_fn for one in values if isinstance(one, torch.Tensor) and one.grad_fn]
    return any(has(node_name(node), Trait.PIECEWISE_LINEAR) for node in consumers(made))


def inputs(node: Any) -> list[Any]:
    """The nodes that made what a node was given, as far as there are any."""
    return [one for one, _ in node.next_functions if one is not None]


def reached(starts: Iterable[Any], onward: Callable[[Any], Iterable[Any]]) -> dict[Any, None]:
    """What some nodes lead to, themselves included."""
    found, waiting = dict.fromkeys(starts), list(starts)
    while waiting:
        new = dict.fromkeys(one for one in onward(waiting.pop()) if one not in found)
        found |= new
        waiting += new
    return found


def up(nodes: set[Any], above: Nodes) -> set[Any]:
    """The nodes, and all that hand them a gradient."""
    return set(reached(nodes, above.__getitem__))


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


def leaf_ids(above: dict[Any, list[Any]]) -> set[int]:
    return {id(leaf) for leaf in leaves(above)}


def saved(node: Any, role: str) -> torch.Tensor | None:
    """What a node has saved of an operand, or of its result; None where it was freed or changed, or
    where a hook of the program's would run once more to give it."""
    raw = getattr(node, f"{_RAW}{role}", None)
    if raw is None or getattr(raw, "unpack_hook", None) is not None:
        return None
    try:
        value = getattr(node, f"_saved_{role}")
    except RuntimeError:
        return None
    return value if isinstance(value, torch.Tensor) else None


def shape_of(node: Any) -> tuple[int, ...]:
    """That of the result, the first of several; none of a nested tensor that C++ knows."""
    known = node._input_metadata[0]
    return () if getattr(known, "is_cpp_nested_tensor", False) else tuple(known.shape)


def dim_of(node: Any) -> int:
    """The dimension that the op worked along."""
    return dimension(node._saved_dim, len(shape_of(node)))


def dimension(kept: int, count: int) -> int:
    """One of `count` dimensions, as a node keeps it: without its sign."""
    return (kept - 2**64 if kept >= 2**63 else kept) % max(count, 1)  # a number has none


def roles(node: Any) -> Iterator[str]:
    """Under which names a node saves tensors."""
    names = (name for name in dir(type(node)) if name.startswith(_RAW))
    return (name.removeprefix(_RAW) for name in names)


def withheld(node: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """What a node has saved and does not hand out any more: with the tensor where that was changed,
    without where it was freed."""
    for role in roles(node):
        try:
            if role == "tensors":  # of a custom Function
                node.saved_tensors  # noqa: B018 - what it raises is the answer
            else:
                getattr(node, f"_saved_{role}")
        except RuntimeError:
            yield from ((role, one) for one in _held(node, f"{_RAW}{role}"))


def _held(node: Any, name: str) -> Iterator[torch.Tensor | None]:
    """The tensors of a saved variable, or of a list of them, whatever their versions."""
    try:
        raw = getattr(node, name)
        yield from [_kept_in(one) for one in (raw if isinstance(raw, tuple | list) else (raw,))]
    except RuntimeError:  # freed
        yield None


def _kept_in(raw: Any) -> torch.Tensor:
    """The tensor of a saved variable that autograd has refused to hand out."""
    if hasattr(raw, "data"):
        return raw.data  # type: ignore[no-any-return]
    given: list[torch.Tensor] = []  # by older versions of torch to a hook alone, at once

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        given.append(tensor)
        return tensor

    raw.register_hooks(pack, lambda tensor: tensor)
    return given[0]


def is_older(node: Any, until: int) -> bool:
    """Whether it was made before the node with that number. Those of leaves are of no time."""
    return hasattr(node, "variable") or node._sequence_nr() < until


def ends(part: set[Any], above: Nodes) -> Iterator[Any]:
    """The nodes of a part of a graph by which the rest of it, or the loss, leads there."""
    for node in part:
        if not hasattr(node, "variable") and not (above[node] and part.issuperset(above[node])):
            yield node


def is_true_leaf(tensor: torch.Tensor) -> bool:
    """A view that is made under `no_grad` has no graph of its own and says that it is a leaf."""
    base = tensor._base
    return tensor.is_leaf and (base is None or not base.requires_grad)
