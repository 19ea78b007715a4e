"""Composite expressions that have a stable form, recognised from the ops that were recorded.

A pattern is a tree of ops. It is compared with an op and its ancestry in the autograd graph, so
`torch.log(p)` three functions below `p = z.softmax(-1)` is still the log of a softmax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradscope.dataclass import dataclass
from gradscope.facts import Ancestor, Call, Event
from gradscope.ops.traits import Trait, has, key


@dataclass(frozen=True, slots=True)
class Pattern:
    """An expression and the one that computes the same without the singularity.

    `stable` is a template: `{x}` is what the innermost function takes (the logits), `{dim}` the
    reduced dimension.
    """

    name: str
    written: str  # "log(softmax(x))"
    stable: str
    why: str


NORMALIZE = Pattern(
    "normalize",
    "x / x.norm()",
    "torch.nn.functional.normalize({x}, dim={dim})",
    "a vector of length 0 makes it 0 / 0; normalize keeps the norm at eps or above",
)
SOFTMAX_BY_HAND = Pattern(
    "softmax",
    "exp(x) / exp(x).sum()",
    "torch.softmax({x}, {dim})",
    "exp overflows, or all of its results are 0; softmax subtracts the largest x first",
)
LOG_SOFTMAX = Pattern(
    "log-softmax",
    "log(softmax(x))",
    "torch.log_softmax({x}, {dim})",
    "softmax rounds small probabilities to 0, whose log is -inf",
)
LOG_SIGMOID = Pattern(
    "log-sigmoid",
    "log(sigmoid(x))",
    "torch.nn.functional.logsigmoid({x})",
    "sigmoid rounds to 0 for very negative x, and log(0) is -inf",
)
LOG_ONE_MINUS_SIGMOID = Pattern(
    "log-one-minus-sigmoid",
    "log(1 - sigmoid(x))",
    "torch.nn.functional.logsigmoid(-{x})",
    "sigmoid rounds to 1 for large x (above 17 in float32), and log(1 - 1) is -inf",
)
LOG_OF_CHOSEN = Pattern(
    "log-of-chosen",
    "log(p * t + (1 - p) * (1 - t)) with p = sigmoid(x)",
    "torch.nn.functional.logsigmoid({x} * (2 * t - 1))",
    "sigmoid rounds to 0 or 1 far out, and log of the one that is 0 is -inf",
)
SOFTPLUS = Pattern(
    "softplus",
    "log(1 + exp(x))",
    "torch.nn.functional.softplus({x})",
    "exp overflows above 88 in float32, where the result is x itself",
)
LOGSUMEXP = Pattern(
    "logsumexp",
    "log(exp(x).sum())",
    "torch.logsumexp({x}, {dim})",
    "exp overflows, or all of its results are 0; logsumexp subtracts the largest x first",
)
LOGADDEXP = Pattern(
    "logaddexp",
    "log(exp(a) + exp(b))",
    "torch.logaddexp({x}, {other})",
    "exp overflows, or both of its results are 0",
)
LOG_COSH = Pattern(
    "log-cosh",
    "log(cosh(x))",
    "{x} + torch.nn.functional.softplus(-2 * {x}) - 0.6931471805599453",
    "cosh overflows above 89 in float32, where the result is |x| - log(2)",
)
LOG_PROD = Pattern(
    "log-prod",
    "log(x.prod())",
    "torch.log({x}).sum({dim})",
    "a product of many small factors rounds to 0",
)
SQRT_VAR = Pattern(
    "sqrt-var",
    "sqrt(x.var())",
    "{x}.std({dim})",
    "the root has an infinite slope at a variance of 0; PyTorch's std gives 0 there",
)
HAND_NORM = Pattern(
    "norm",
    "sqrt((x ** 2).sum())",
    "torch.linalg.vector_norm({x}, dim={dim})",
    "the root has an infinite slope at 0; PyTorch's norm gives the subgradient 0 there",
)
ABSOLUTE = Pattern(
    "absolute",
    "sqrt(x ** 2)",
    "{x}.abs()",
    "the root has an infinite slope at 0; PyTorch's abs gives the subgradient 0 there",
)
HAND_RMS = Pattern(
    "root-mean-square",
    "sqrt((x ** 2).mean())",
    "torch.linalg.vector_norm({x}, dim={dim}) / {x}.shape[{dim}] ** 0.5",
    "the root has an infinite slope at 0; PyTorch's norm gives the subgradient 0 there",
)


@dataclass(frozen=True, slots=True)
class Tree:
    """An op (one of several), and what its inputs are: None is anything, CONSTANT no gradient.

    `alike`: the second input is the first, of other ops than `mul` also computed from it. `adds` is
    the number that it takes, where that is known.
    """

    ops: frozenset[str]
    inputs: tuple[Tree | None, ...] = ()
    alike: bool = False
    adds: float | None = None


CONSTANT = Tree(frozenset({"constant"}))
EPSILON = 1e-2  # a constant up to here is added to guard something, not to mean something

_COMMUTES = frozenset({"add", "mul"})


def _op(ops: str, *inputs: Tree | None, alike: bool = False, adds: float | None = None) -> Tree:
    return Tree(frozenset(ops.split()), inputs, alike, adds)


_EXP = _op("exp")
_SIGMOID = _op("sigmoid")
_SOFTMAX = _op("softmax")
_SUM_EXP = _op("sum", _EXP)
_ONE_PLUS_EXP = _op("add", _EXP, CONSTANT, adds=1.0)
_ONE_MINUS_SIGMOID = _op("rsub sub", _SIGMOID)
_CHOSEN = _op("add", _op("mul", _SIGMOID, CONSTANT), _op("mul", _ONE_MINUS_SIGMOID, CONSTANT))
_NORM = _op("linalgvectornorm norm")
_SQUARES = (_op("pow square"), _op("mul", None, None, alike=True))
_HAND_NORMS = tuple(_op("sqrt pow", _op("sum", square)) for square in _SQUARES)
_HAND_RMS = tuple(_op("sqrt pow", _op("mean", square)) for square in _SQUARES)
_ANY_NORM = (_NORM, *_HAND_NORMS)

_HAND_SIGMOID = _op("reciprocal", _op("add", _op("exp", _op("neg")), CONSTANT, adds=1.0))
_TWO_EXPS = _op("add", _EXP, _op("exp", _op("neg")))

# The widest first: the first that matches is the answer.
PATTERNS: tuple[tuple[Tree, Pattern], ...] = (
    (_op("div", _EXP, _SUM_EXP), SOFTMAX_BY_HAND),
    *((_op("div", None, norm, alike=True), NORMALIZE) for norm in _ANY_NORM),
    (_op("log", _SOFTMAX), LOG_SOFTMAX),
    (_op("log", _op("div", _EXP, _SUM_EXP)), LOG_SOFTMAX),
    (_op("log", _SIGMOID), LOG_SIGMOID),
    (_op("log", _op("mul", _HAND_SIGMOID, CONSTANT)), LOG_SIGMOID),
    (_op("log", _ONE_MINUS_SIGMOID), LOG_ONE_MINUS_SIGMOID),
    (_op("log1p", _op("neg", _SIGMOID)), LOG_ONE_MINUS_SIGMOID),
    (_op("log", _CHOSEN), LOG_OF_CHOSEN),
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
    *((_op("sqrt pow", square), ABSOLUTE) for square in _SQUARES),
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
    calls = (call for call in path if not _is_transparent(call.op, call))
    return found or _followed(op, [call.op for call in calls if not _guards(call.op, call)])


def recognize(event: Event) -> Pattern | None:
    """The pattern that an event lies in."""
    if event.op == "pow" and event.values().get("exponent", 0.5) != 0.5:
        return None  # the patterns that end in a power mean the root
    return match(event.op, event.ancestry, event.path)


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
    # PowBackward1 has an exponent that is a tensor, often learned: not the square of a pattern.
    is_op = key(node.node) in tree.ops and node.node != "PowBackward1"
    if tree.adds is not None and _constant(node.call) not in (None, tree.adds):
        is_op = False
    if is_op and _inputs_match(tree, node):
        return True
    return _hands_on(node) and any(_matches(tree, above) for above in node.inputs if above)


def _inputs_match(tree: Tree, node: Ancestor) -> bool:
    return any(
        all(_matches(part, above) for part, above in zip(tree.inputs, inputs, strict=True))
        and (not tree.alike or _alike(inputs[0], inputs[1], key(node.node) == "mul"))
        for inputs in _orders(node, len(tree.inputs))
    )


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
    return _constant(node.call) is None or _guards(node.node, node.call)


def _guards(name: str, call: Call | None) -> bool:
    """Adds a number that is so small that it only guards something."""
    constant = _constant(call)
    return key(name) == "add" and constant is not None and abs(constant) <= EPSILON


def _constant(call: Call | None) -> float | None:
    return call.constant if call is not None else None
