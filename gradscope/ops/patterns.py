"""Composite expressions that have a stable form, recognised from the ops that were recorded.

A pattern is a tree of ops. It is compared with an op and its ancestry in the autograd graph, so
`torch.log(p)` three functions below `p = z.softmax(-1)` is still the log of a softmax.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gradscope.facts import Ancestor, Call, Event
from gradscope.ops.forms import (
    BINARY_CROSS_ENTROPY,
    BINARY_CROSS_ENTROPY_OF_P,
    COSINE,
    CROSS_ENTROPY,
    ENTROPY_OF_LOGITS,
    FOCAL,
    GAUSSIAN_NLL,
    HAND_NORM,
    HAND_RMS,
    KL_DIVERGENCE,
    LOG_COSH,
    LOG_ONE_MINUS_SIGMOID,
    LOG_PROD,
    LOG_SIGMOID,
    LOG_SOFTMAX,
    LOGADDEXP,
    LOGSUMEXP,
    NORMALIZE,
    SOFTMAX_BY_HAND,
    SOFTPLUS,
    SQRT_VAR,
    STANDARDIZE,
    Pattern,
)
from gradscope.ops.traits import Trait, has, key


@dataclass(frozen=True, slots=True)
class Tree:
    """An op (one of several), and what its inputs are: None is anything, CONSTANT no gradient.

    `alike`: the second input is the first, of other ops than `mul` also computed from it.
    """

    ops: frozenset[str]
    inputs: tuple[Tree | None, ...] = ()
    alike: bool = False


CONSTANT = Tree(frozenset({"constant"}))
EPSILON = 1e-2  # a constant up to here is added to guard something, not to mean something

_COMMUTES = frozenset({"add", "mul"})


def _op(ops: str, *inputs: Tree | None, alike: bool = False) -> Tree:
    return Tree(frozenset(ops.split()), inputs, alike)


_EXP = _op("exp")
_SIGMOID = _op("sigmoid")
_SOFTMAX = _op("softmax")
_PROBABILITY = _op("softmax sigmoid")
_SUM_EXP = _op("sum", _EXP)
_ONE_PLUS_EXP = _op("add", _EXP, CONSTANT)
_ONE_MINUS_SIGMOID = _op("rsub sub", _SIGMOID)
_COMPLEMENT = _op("rsub sub")
_LOG_PROBABILITY = _op("log", _PROBABILITY)
_NORM = _op("linalgvectornorm norm")
_SQUARES = (_op("pow square"), _op("mul", None, None, alike=True))
_HAND_NORMS = tuple(_op("sqrt pow", _op("sum", square)) for square in _SQUARES)
_HAND_RMS = tuple(_op("sqrt pow", _op("mean", square)) for square in _SQUARES)
_ANY_NORM = (_NORM, *_HAND_NORMS)
_SQUARED_GAP = _op("pow mul square", _op("sub"))

_HAND_SIGMOID = _op("reciprocal", _op("add", _op("exp", _op("neg")), CONSTANT))
_TWO_EXPS = _op("add", _EXP, _op("exp", _op("neg")))

# The widest first: the first that matches is the answer.
PATTERNS: tuple[tuple[Tree, Pattern], ...] = (
    (
        _op(
            "add sub",
            _op("mul", None, _op("log", _SIGMOID)),
            _op("mul", None, _op("log log1p", _ONE_MINUS_SIGMOID)),
        ),
        BINARY_CROSS_ENTROPY,
    ),
    (
        _op("add sub", _op("mul", None, _op("log")), _op("mul", None, _op("log", _COMPLEMENT))),
        BINARY_CROSS_ENTROPY_OF_P,
    ),
    (_op("mul", _op("pow", _op("rsub sub", _PROBABILITY)), _LOG_PROBABILITY), FOCAL),
    (_op("mul", None, _op("sub", _op("log logsoftmax"), _op("log logsoftmax"))), KL_DIVERGENCE),
    (_op("mul", None, _op("log", _op("div", _PROBABILITY, None))), KL_DIVERGENCE),
    (_op("mul", _SOFTMAX, _op("log", _SOFTMAX)), ENTROPY_OF_LOGITS),
    (_op("mul", CONSTANT, _op("log", _SOFTMAX)), CROSS_ENTROPY),
    (_op("neg", _op("sum mean", _op("log", _SOFTMAX))), CROSS_ENTROPY),
    (_op("add", _op("log mul"), _op("div", _SQUARED_GAP, None)), GAUSSIAN_NLL),
    (_op("add", _op("log"), _op("mul", None, _op("div", _SQUARED_GAP, None))), GAUSSIAN_NLL),
    *(
        (_op("div", _op("sum", _op("mul")), _op("mul", first, second)), COSINE)
        for first in _ANY_NORM
        for second in _ANY_NORM
    ),
    (_op("div", _EXP, _SUM_EXP), SOFTMAX_BY_HAND),
    (_op("div", _op("sub", None, _op("mean")), _op("std sqrt")), STANDARDIZE),
    *((_op("div", None, norm, alike=True), NORMALIZE) for norm in _ANY_NORM),
    (_op("log", _SOFTMAX), LOG_SOFTMAX),
    (_op("log", _op("div", _EXP, _SUM_EXP)), LOG_SOFTMAX),
    (_op("log", _SIGMOID), LOG_SIGMOID),
    (_op("log", _op("mul", _HAND_SIGMOID, CONSTANT)), LOG_SIGMOID),
    (_op("log", _ONE_MINUS_SIGMOID), LOG_ONE_MINUS_SIGMOID),
    (_op("log1p", _op("neg", _SIGMOID)), LOG_ONE_MINUS_SIGMOID),
    (_op("log", _ONE_PLUS_EXP), SOFTPLUS),
    (_op("log1p", _EXP), SOFTPLUS),
    (_op("log", _op("sum mean", _EXP)), LOGSUMEXP),
    (_op("log", _op("cosh")), LOG_COSH),
    (_op("log", _op("div mul", _TWO_EXPS)), LOG_COSH),
    (_op("log", _op("add", _EXP, _EXP)), LOGADDEXP),
    (_op("log", _op("prod")), LOG_PROD),
    (_op("sqrt pow", _op("var")), SQRT_VAR),
    *((norm, HAND_NORM) for norm in _HAND_NORMS),
    *((mean, HAND_RMS) for mean in _HAND_RMS),
)

# What an op feeds, where it is the culprit itself: `exp` that overflows under a log.
FOLLOWED: tuple[tuple[str, tuple[str, ...], Pattern], ...] = (
    ("exp", ("sum", "log"), LOGSUMEXP),
    ("exp", ("mean", "log"), LOGSUMEXP),
    ("exp", ("add", "log"), SOFTPLUS),
    ("exp", ("log1p",), SOFTPLUS),
    ("exp", ("add", "div", "log"), LOG_COSH),
    ("exp", ("add", "mul", "log"), LOG_COSH),
    ("exp", ("sum", "div"), SOFTMAX_BY_HAND),
    ("cosh", ("log",), LOG_COSH),
    ("prod", ("log",), LOG_PROD),
    ("_softmax", ("log",), LOG_SOFTMAX),
    ("sigmoid", ("log",), LOG_SIGMOID),
    ("sigmoid", ("rsub", "log"), LOG_ONE_MINUS_SIGMOID),
)


def match(
    op: str, ancestry: Sequence[Ancestor | None], path: Sequence[Call] = ()
) -> Pattern | None:
    """The pattern that ends in `op`; else the one that `op` begins, by the calls that follow it."""
    root = Ancestor(op, None, tuple(ancestry))
    found = next((pattern for tree, pattern in PATTERNS if _matches(tree, root)), None)
    return found or _followed(op, [call.op for call in path if not _is_transparent(call.op, call)])


def recognize(event: Event, chain: Iterable[Event] = ()) -> Pattern | None:
    """The widest pattern that an event lies in: `chain` are the events after it, which see more."""
    forward = [one for one in chain if one.node is None]
    if event.op == "pow" and event.values().get("exponent", 0.5) != 0.5:
        return None  # the patterns that end in a power mean the root
    candidates = [match(event.op, event.ancestry, event.path)]
    candidates += [match(one.op, one.ancestry) for one in forward]
    order = [pattern for _, pattern in PATTERNS]
    found = [pattern for pattern in candidates if pattern is not None]
    return min(found, key=order.index, default=None)


def _followed(op: str, path: list[str]) -> Pattern | None:
    for first, after, pattern in FOLLOWED:
        if first == op and tuple(path[: len(after)]) == after:
            return pattern
    return None


def _matches(tree: Tree | None, node: Ancestor | None) -> bool:
    if tree is None:
        return True
    if tree is CONSTANT or node is None:
        return tree is CONSTANT and node is None
    if key(node.node) in tree.ops and _exponent_fits(node) and _inputs_match(tree, node):
        return True
    return _hands_on(node) and any(_matches(tree, above) for above in node.inputs if above)


def _inputs_match(tree: Tree, node: Ancestor) -> bool:
    return any(
        all(_matches(part, above) for part, above in zip(tree.inputs, inputs, strict=True))
        and (not tree.alike or _alike(inputs[0], inputs[1], key(node.node) == "mul"))
        for inputs in _orders(node, len(tree.inputs))
    )


def _exponent_fits(node: Ancestor) -> bool:
    """PowBackward1 has an exponent that is a tensor, often learned: not the square of a pattern."""
    return node.node != "PowBackward1"


def _alike(source: Ancestor | None, other: Ancestor | None, exactly: bool) -> bool:
    """Whether two tensors are one, or else the other is computed from the source; views are
    looked through."""
    source, other = _behind_views(source), _behind_views(other)
    if source is None or other is None:
        return False
    if _identity(other) == _identity(source):
        return True
    return not exactly and any(_alike(source, above, exactly) for above in other.inputs)


def _behind_views(node: Ancestor | None) -> Ancestor | None:
    while node is not None and _is_transparent(node.node, node.call):
        node = next((above for above in node.inputs if above is not None), None)
    return node


def _identity(node: Ancestor) -> tuple[str, int | None]:
    return node.node, node.call.seq if node.call is not None else None


def _orders(node: Ancestor, count: int) -> Iterator[tuple[Ancestor | None, ...]]:
    """The node's inputs, filled up to `count`; an operation that commutes, also reversed.

    `1 - x` and `x * 2` have one input that is a tensor: where one is asked for, each may be it.
    """
    inputs = (*node.inputs, None, None)
    kind = key(node.node)
    yield inputs[:count]
    if count == 2 and kind in _COMMUTES:
        yield (inputs[1], inputs[0])
    if count == 1 and kind in ("sub", "add", "mul", "div"):
        yield (inputs[1],)


def _is_transparent(name: str, call: Call | None) -> bool:
    """Hands its operand on: a view, a copy, a selection or a clamp."""
    if call is not None and call.view:
        return True
    chooses = has(name, Trait.CHOOSES) and not has(name, Trait.BY_VALUE)
    return chooses or has(name, Trait.COPIES | Trait.CLAMPS)


def _hands_on(node: Ancestor) -> bool:
    """A view, a copy, or the sum with a small constant: `softmax(x) + 1e-9` is a softmax still."""
    if _is_transparent(node.node, node.call):
        return True
    if key(node.node) != "add" or sum(above is not None for above in node.inputs) != 1:
        return False
    constant = node.call.constant if node.call is not None else None
    return constant is None or abs(constant) <= EPSILON
