"""Sums over one dimension, also of logarithms, weighted by a softmax along another: that of the
samples of a batch."""

from collections.abc import Iterator, Sequence
from typing import Any

from gradscope.record.graph import dim_of, dimension, inputs, node_name, saved, shape_of
from gradscope.record.passes import BackwardPass

_FARTHEST = 8  # views and a dropout between the two, as `einsum` makes them
_MOVED = ("PermuteBackward0", "TransposeBackward0")
_VIEWS = (  # with the elements in their order
    "UnsqueezeBackward0",
    "SqueezeBackward0",
    "SqueezeBackward1",
    "SqueezeBackward2",
    "ViewBackward0",
    "UnsafeViewBackward0",
    "ReshapeAliasBackward0",
)
_BROADCAST = (  # each element as it was or scaled
    "ExpandBackward0",
    "CloneBackward0",
    "MulBackward0",
    "DivBackward0",
    "NativeDropoutBackward0",
)
# How logarithms are weighed and added up, and how numbers are.
_WEIGH = {
    "LogSoftmaxBackward0": (("AddBackward0", "SubBackward0"), "LogsumexpBackward0"),
    "SoftmaxBackward0": (("MulBackward0",), "SumBackward1"),
}
_Axes = list[int | None]  # for each dimension of a view that of the softmax


def over_samples(one: BackwardPass) -> Iterator[tuple[Any, Any, int]]:
    """Each softmax along the first dimension of a batch with the weighted sum that reads it, and
    the dimension that is summed over. Capsules and clusters compete along one dimension and are
    summed over another, but not along that of the samples, which then weigh each other."""
    counts = {shape_of(below)[0] for node in one.above for below in _averaged(node)}
    for node in one.above:
        if node_name(node) not in _WEIGH or dim_of(node) != 0:
            continue
        if len(shape_of(node)) > 1 and shape_of(node)[0] in counts - {1}:
            total, dim = _weighted_sum(node, one)
            if total is not None and dim:
                yield node, total, dim


def _averaged(node: Any) -> list[Any]:
    """What a node makes one number of, where it has a dimension for the samples."""
    if not node._input_metadata or shape_of(node):
        return []
    return [below for below in inputs(node) if below._input_metadata and shape_of(below)]


def _weighted_sum(node: Any, one: BackwardPass) -> tuple[Any, int | None]:
    """The sum that a softmax is the weight in, and over which of its dimensions that goes."""
    shape: Sequence[int] = shape_of(node)
    weigh, add = _WEIGH[node_name(node)]
    axes: _Axes = [*range(len(shape))]
    for _ in range(_FARTHEST):
        users = one.above[node]
        if len(users) != 1:
            break
        before, (node,) = node, users
        name = node_name(node)
        if name == "BmmBackward0":
            is_left = node.next_functions[0][0] is before
            return node, axes[-1 if is_left else -2]
        others = [made for made, _ in node.next_functions if made is not before]
        if name in weigh and (shape_of(node) != tuple(shape) or any(others)):
            return _summed(node, add, _broadcast(axes, node), one)
        if name in _MOVED:
            axes = _moved(axes, node)
        elif name in _BROADCAST:
            axes = _broadcast(axes, node)
        elif name in _VIEWS:
            axes = _carried(axes, shape, shape_of(node))
        else:
            break
        shape = shape_of(node)
    return None, None


def _summed(product: Any, add: str, axes: _Axes, one: BackwardPass) -> tuple[Any, int | None]:
    """For weights that have been multiplied with what has more features, or is trained."""
    users = one.above[product]
    if len(users) != 1 or node_name(users[0]) != add or 0 not in axes:
        return None, None
    dims = [dimension(dim, len(axes)) for dim in users[0]._saved_dim]
    shared = axes.index(0)
    size = shape_of(product)[shared]
    if len(dims) != 1 or not all(shape[shared] == size for shape in _factors(product)):
        return None, None
    return users[0], axes[dims[0]]


def _factors(product: Any) -> Iterator[Sequence[int]]:
    """The shapes of both factors, as broadcast to the same number of dimensions."""
    count = len(shape_of(product))
    for (made, _), role in zip(product.next_functions, ("self", "other"), strict=True):
        kept = saved(product, role) if made is None else None
        shape = (
            shape_of(made) if made is not None else tuple(kept.shape) if kept is not None else ()
        )
        yield (1,) * (count - len(shape)) + shape


def _moved(axes: _Axes, node: Any) -> _Axes:
    if node_name(node) == "PermuteBackward0":
        return [axes[dimension(dim, len(axes))] for dim in node._saved_dims]
    first, second = (dimension(dim, len(axes)) for dim in (node._saved_dim0, node._saved_dim1))
    moved = [*axes]
    moved[first], moved[second] = axes[second], axes[first]
    return moved


def _broadcast(axes: _Axes, node: Any) -> _Axes:
    return [*[None] * (len(shape_of(node)) - len(axes)), *axes]


def _carried(axes: _Axes, shape: Sequence[int], after: Sequence[int]) -> _Axes:
    """The dimensions of a view, by their sizes from the last to the first; None for those that are
    new, or made of several."""
    left = [(axis, size) for axis, size in zip(axes, shape, strict=True) if size != 1]
    found: _Axes = []
    for size in reversed(after):
        found.insert(0, left.pop()[0] if left and size != 1 and left[-1][1] == size else None)
    return found
