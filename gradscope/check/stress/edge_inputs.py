"""Edge inputs made from given ones, and how a function reads those, by the autograd graph of its
loss. Nothing is made that the user has declared not to occur."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor

from gradscope.check.stress.subjects import Values
from gradscope.config import Input
from gradscope.dataclass import dataclass
from gradscope.ops.traits import Trait, has
from gradscope.record.graph import inputs, reached


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
            factors.update(names.get(id(_behind_copies(one))) for one in inputs(node))
        return [(one, is_behind) for one in inputs(node)]

    reached([(loss.grad_fn, False)], below)
    scores = {name for name, behind in ways if behind and (name, False) not in ways}
    return Reads(frozenset(scores), frozenset(factors))


def _behind_copies(node: Any) -> object:
    """The leaf whose elements a node hands on, if it is one's."""
    while node is not None and has(type(node).__name__, Trait.COPIES):
        node = node.next_functions[0][0]
    return getattr(node, "variable", None)


def grads_are_finite(loss: Tensor) -> bool:
    """Of every leaf that the loss depends on, parameters of the function's own model included."""
    nodes = reached([loss.grad_fn], inputs)
    leaves = {id(node.variable): node.variable for node in nodes if hasattr(node, "variable")}
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return all(grad is None or bool(torch.isfinite(grad).all()) for grad in grads)


_HUGE = 1e4  # its square fits float32, its exponential does not
_LARGE = 100.0  # its exponential does not fit float32
_SATURATED = 20.0  # a sigmoid of it is 1 in float32
_TINY = (1e-12, 1e-25)  # the square of the second is 0 in float32
_TOGETHER = ("zeros", "ones", "equal elements", "one-hot rows", "identities")
Patterns = Iterator[tuple[str, Tensor]]


class BadLoss(Enum):
    """Which losses tell against a function at some inputs."""

    ANY = auto()  # NaN and inf
    NAN = auto()  # inf may be right: the log of a probability that is 0
    NONE = auto()  # numbers so large, or so few, that the loss says nothing

    def tells(self, loss: float) -> bool:
        return self is BadLoss.ANY or (self is BadLoss.NAN and math.isnan(loss))


@dataclass(frozen=True, slots=True)
class Edge:
    """Values by name, and how they were made: "zeros in x".

    `ordinary` ones hold numbers that the user declared, or change which of the given ones count
    or how many there are: a bad loss is an error there too. `half` ones are in another dtype.
    """

    words: str
    values: Values = field(repr=False)
    bad_loss: BadLoss = BadLoss.ANY
    ordinary: bool = False
    half: bool = False


def edges(
    given: Values, declared: Mapping[str, Input], read: Reads, *, halves: bool
) -> Iterator[Edge]:
    """Every edge input, the likeliest to matter first. `read` is how the function reads them."""
    for edge in _all(given, declared, read):
        if all(_allowed(value, declared.get(name)) for name, value in edge.values.items()):
            yield edge
    for dtype in (torch.float16, torch.bfloat16) if halves else ():
        made = {name: one.to(dtype) if is_float(one) else one for name, one in given.items()}
        yield Edge(str(dtype).removeprefix("torch."), made, half=True)


def _all(given: Values, declared: Mapping[str, Input], read: Reads) -> Iterator[Edge]:
    floats = {name: value for name, value in given.items() if is_float(value)}
    for name, value in floats.items():
        limits = declared[name].range if name in declared else None
        for words, made in _ends(value, *limits) if limits else ():
            yield Edge(f"{words} {name}", {**given, name: made}, ordinary=True)
    for name, value in given.items():
        if isinstance(value, Tensor) and value.numel():
            for words, made, bad_loss, ordinary in _of_one(name, value, declared.get(name), read):
                yield Edge(f"{words} in {name}", {**given, name: made}, bad_loss, ordinary)
    for words, together in _together(floats):
        yield Edge(words, {**given, **together})
    yield from _batches(given)


def _ends(tensor: Tensor, *limits: float) -> Patterns:
    """The ends of a declared range, and the nearest numbers inside it."""
    low, high = (torch.tensor(limit).to(tensor) for limit in limits)
    ends = {
        "the lower end": low,
        "the upper end": high,
        "just above the lower end": torch.nextafter(low, high),
        "just below the upper end": torch.nextafter(high, low),
    }
    for words, end in ends.items():
        yield f"{words} in", end.expand_as(tensor).clone()
        if tensor.dim():
            yield f"{words} in an element of", _first(tensor, end)


def _of_one(
    name: str, tensor: Tensor, declared: Input | None, read: Reads
) -> Iterator[tuple[str, Tensor, BadLoss, bool]]:
    """The edges of one input: words, the tensor, which losses tell, and whether it is ordinary."""
    promised = declared is not None and declared.range is not None
    if tensor.dtype == torch.bool:
        for words, made in _of_mask(tensor, False, True):
            yield words, made, BadLoss.ANY, True
        return
    if _is_mask(tensor, declared, multiplies=name in read.factors):
        for words, made in _of_mask(tensor, 0, 1):
            yield words, made, BadLoss.ANY, True
    if tensor.is_floating_point():
        if name in read.scores and tensor.dim():
            yield from _of_scores(tensor)
        for words, made in _of_floats(tensor):
            judged = BadLoss.NONE if "scaled" in words and not promised else BadLoss.ANY
            yield words, made, judged, promised
    elif not tensor.is_complex():
        # Whole numbers are often labels, indices or lengths: only such as were given, and 0.
        yield "zeros", torch.zeros_like(tensor), BadLoss.ANY, True
        yield "the smallest alone", torch.full_like(tensor, int(tensor.min())), BadLoss.ANY, True
        yield "the largest alone", torch.full_like(tensor, int(tensor.max())), BadLoss.ANY, True
        yield "one zero", _first(tensor, 0), BadLoss.ANY, True


def _of_floats(tensor: Tensor) -> Patterns:
    finite = tensor[torch.isfinite(tensor)]
    signed = bool((finite < 0).any())
    zeros, ones = torch.zeros_like(tensor), torch.ones_like(tensor)
    yield "zeros", zeros
    yield "ones", ones
    if tensor.dim():
        yield "one zero", _first(tensor, 0.0)
        yield "one 1", _first(tensor, 1.0)
        yield "a row of zeros", _with(tensor, 0, 0.0)
        yield "equal elements", tensor.reshape(-1)[0].expand_as(tensor).clone()
        yield "one-hot values", _first(zeros, 1.0)
        yield "one large value", _first(tensor, 2 * _LARGE)
    if tensor.dim() > 1:
        yield "one-hot rows", _with(zeros, (..., 0), 1.0)
        yield "equal rows", tensor[:1].expand_as(tensor).clone()
        yield "a constant row", _with(tensor, 0, tensor[0].reshape(-1)[0])
        if tensor.shape[-1] == tensor.shape[-2]:
            yield "identities", torch.eye(tensor.shape[-1]).to(tensor).expand_as(tensor).clone()
    if tensor.dim() and tensor.shape[0] > 1:
        yield "two equal rows", _with(tensor, 1, tensor[0])
    if signed:
        yield "positive values", tensor.abs()
        yield "negative values", -tensor.abs()
    scales: tuple[float, ...] = _TINY
    if signed or bool((finite > 1).any()):  # else they may be probabilities
        scales = (*_TINY, _HUGE)
        for size in (_SATURATED, _LARGE, *((-_SATURATED, -_LARGE) if signed else ())):
            yield f"values of {size:g}", size * ones
    for scale in scales:
        yield f"values scaled by {scale:g}", tensor * scale


def _of_mask(mask: Tensor, hidden: Any, shown: Any) -> Patterns:
    """Masks that hide all, nothing, or one whole row, in the two values that the mask has."""
    for value in (hidden, shown):
        yield f"all {value}", torch.full_like(mask, value)
        if mask.dim() > 1:
            yield f"a row of {value}", _with(mask, 0, value)


def _is_mask(tensor: Tensor, declared: Input | None, *, multiplies: bool) -> bool:
    """Whether a tensor of 0 and 1 says which elements count. Ones alone may be any number: that
    they are a factor, or that no gradient is wanted, tells them apart."""
    if not tensor.dim() or not bool(((tensor == 0) | (tensor == 1)).all()):
        return False
    both = bool((tensor == 0).any()) and bool((tensor == 1).any())
    unwanted = declared is not None and declared.requires_grad is False
    return multiplies or (tensor.is_floating_point() and (both or unwanted))


def _of_scores(tensor: Tensor) -> Iterator[tuple[str, Tensor, BadLoss, bool]]:
    """What masking makes of a score, or of a mask that is added to one: 0, or far below it."""
    added = bool(((tensor == 0) | (tensor <= -_LARGE)).all())
    # Scores of nothing but -inf may have no loss; a mask is there to hide all that there is.
    judged = BadLoss.ANY if added else BadLoss.NONE
    if tensor.dim() > 1:
        yield "a row of -inf", _with(tensor, 0, -math.inf), judged, added
    one = BadLoss.ANY if added else BadLoss.NAN
    yield "one -inf", _first(tensor, -math.inf), one, True
    yield "all -inf", torch.full_like(tensor, -math.inf), judged, added
    if added:
        yield "all 0", torch.zeros_like(tensor), BadLoss.ANY, True


def _together(floats: Values) -> Iterator[tuple[str, Values]]:
    """Two inputs alike, opposite or along one line, and the simplest edges in all at once."""
    for one, left in floats.items():
        for other, right in floats.items():
            if one < other and left.shape == right.shape:
                for words, made in (
                    ("equal to", left),
                    ("opposite to", -left),
                    ("twice", 2 * left),
                ):
                    if _is_alike(made, right):
                        yield f"{other} {words} {one}", {other: made.clone()}
    patterns = {name: dict(_of_floats(value)) for name, value in floats.items() if value.numel()}
    for words in _TOGETHER:
        made = {name: found[words] for name, found in patterns.items() if words in found}
        if len(made) > 1:
            yield f"{words} everywhere", made


def _is_alike(made: Tensor, given: Tensor) -> bool:
    """Whether it is of the same kind: probabilities stay between 0 and 1, distances positive."""
    negative, large = bool((given < 0).any()), bool((given > 1).any())
    return (negative or bool((made >= 0).all())) and (negative or large or bool((made <= 1).all()))


def _batches(given: Values) -> Iterator[Edge]:
    """Fewer items: along the first dimension that the tensors share."""
    sizes = [one.shape[0] for one in given.values() if isinstance(one, Tensor) and one.dim()]
    size = max(sizes, key=sizes.count, default=0)
    if size > 1:
        yield Edge("a single item", sliced(given, size, 1, first_only=True), ordinary=True)
    if size > 0:
        # The mean over nothing is NaN in every loss, so a bad loss is no news here.
        empty = sliced(given, size, 0, first_only=True)
        yield Edge("an empty batch", empty, BadLoss.NONE)


def sliced(values: Values, size: int, count: int, *, first_only: bool = False) -> Values:
    """Every dimension of that size cut to `count`, in all tensors at once."""

    def cut(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        for dim in range(min(1, value.dim()) if first_only else value.dim()):
            if value.shape[dim] == size:
                value = value.narrow(dim, 0, count)
        return value.clone()

    return {name: cut(value) for name, value in values.items()}


def _allowed(value: Any, declared: Input | None) -> bool:
    if declared is None or not isinstance(value, Tensor):
        return True
    if not value.numel():
        return not declared.nonempty
    return value.dtype == torch.bool or is_inside(value, declared)


def is_inside(value: Tensor, declared: Input | None) -> bool:
    if declared is None or declared.range is None:
        return True
    low, high = declared.range
    return bool(((value >= low) & (value <= high)).all())


def _with(tensor: Tensor, index: Any, value: Any) -> Tensor:
    made = tensor.clone()
    made[index] = value
    return made


def _first(tensor: Tensor, value: Any) -> Tensor:
    return _with(tensor, (0,) * tensor.dim(), value)


def is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
