"""The logarithms of what a normal distribution has below, above and between numbers."""

import ast
import math

from gradscope.repair.write.forms import fit
from gradscope.repair.write.reading import Reading, atom, negative
from gradscope.repair.write.uses import given_to, returned
from gradscope.source.arguments import Spelled, arguments_of

_CALLS = 4  # functions that hand a distribution on; one may call itself
_NORMAL = ("torch.distributions.Normal", "torch.distributions.normal.Normal")
_BELOW = "torch.special.log_ndtr({})"
# Each with the sign of z.
_WRITTEN = dict.fromkeys(("0.5 * erfc(z)", "erfc(z) / 2"), "-")
_WRITTEN |= dict.fromkeys(("0.5 * (1 + erf(z))", "(1 + erf(z)) / 2"), "")
_WRITTEN |= dict.fromkeys(("0.5 * erf(z) + 0.5", "erf(z) / 2 + 0.5"), "")
_ROOT = math.sqrt(2)
_ROOTS = ("math.sqrt", "numpy.sqrt")


def log_cdf(read: Reading, found: Spelled, *, above: bool = False) -> str | None:
    """Of `normal.cdf(x)`; `above`: of what lies above the number."""
    z = _of_distribution(read, found, above=above)
    return z and _BELOW.format(z)


def log_written(read: Reading, node: ast.expr, *, above: bool = False) -> str | None:
    """Of a standard normal's cdf that is written out; `above`: log(1 - node) of that."""
    if (inner := _deviation(read, node)) is None:
        return None
    z = _scaled(read, *inner)
    return _BELOW.format(negative(z) if above else z)


def log_between(read: Reading, upper: ast.expr, lower: ast.expr) -> str | None:
    """log(cdf(u) - cdf(l)), taken on the left: on the right both are 1, or next to it, and what is
    small there is what lies above them."""
    above, below = _standardised(read, upper), _standardised(read, lower)
    if above is None or below is None:
        return None
    near = _BELOW.format(f"torch.minimum({above}, {negative(below)})")
    far = _BELOW.format(f"torch.minimum({below}, {negative(above)})")
    return f"{near} + torch.log(-torch.expm1({far} - {near}))"


def _standardised(read: Reading, node: ast.expr) -> str | None:
    """z of the standard normal's cdf at z, however it is written: also by a function that computes
    it of its argument."""
    if (found := read.op(node, "cdf")) is not None:
        return _of_distribution(read, found)
    if (inner := _deviation(read, node)) is not None:
        return _scaled(read, *inner)
    call, source = read.meaning(node), read.culprit.source
    made = returned(source, call) if isinstance(call, ast.Call) else None
    function = source.nodes.function(made) if made is not None else None
    inner = _deviation(read, made) if made is not None else None
    if inner is None or not isinstance(call, ast.Call) or not isinstance(function, ast.FunctionDef):
        return None
    operand, scale = inner
    given = arguments_of(function, call).get(source.of(operand))
    return _scaled(read, given, scale) if given is not None else None


def _scaled(read: Reading, node: ast.expr, scale: str) -> str:
    text = read.text(node)
    return f"{scale}{atom(text)}" if scale else text


def _deviation(read: Reading, node: ast.expr) -> tuple[ast.expr, str] | None:
    """z of an expression, and the factor that it lacks."""
    if (parts := fit(read, "ndtr(z)", node)) is not None:
        return parts["z"], ""
    for example, sign in _WRITTEN.items():
        if (parts := fit(read, example, node)) is not None:
            inner = _over_root(read, parts["z"])
            return (inner, sign) if inner is not None else (parts["z"], f"{sign}{_ROOT!r} * ")
    return None


def _over_root(read: Reading, node: ast.expr) -> ast.expr | None:
    """z of z / sqrt(2), however that number is written."""
    for op, number in (("div", _ROOT), ("mul", 1 / _ROOT)):
        found = read.op(node, op)
        first, second = found.positional[:2] if found is not None else (None, None)
        for one, other in ((first, second), (second, first))[: 1 + (op == "mul")]:
            value = _number(read, other) if other is not None else None
            if value is not None and math.isclose(value, number, rel_tol=1e-6):
                return one
    return None


def _number(read: Reading, node: ast.expr) -> float | None:
    """That of a literal, of a name for it, of a power or a root of it."""
    if (number := read.number(node)) is not None:
        return number
    given = given_to(read.culprit.source, node) if isinstance(node, ast.Name) else None
    if given is not None:
        return _number(read, given)
    node = read.meaning(node)
    if isinstance(node, ast.Call) and read.culprit.dotted(node) in _ROOTS:
        inner = _number(read, node.args[0]) if node.args else None
        return math.sqrt(inner) if inner is not None and inner >= 0 else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.Div):
        one, other = _number(read, node.left), _number(read, node.right)
        if one and other and one > 0:
            return float(one**other) if isinstance(node.op, ast.Pow) else one / other
    return None


def _of_distribution(read: Reading, found: Spelled, *, above: bool = False) -> str | None:
    """z of `normal.cdf(x)`, with the other sign of what lies `above`."""
    source, (normal, *given) = read.culprit.source, found.positional
    made = given_to(source, normal)
    for _ in range(_CALLS):
        inner = returned(source, made) if isinstance(made, ast.Call) else None
        made = inner if inner is not None else made
    is_normal = isinstance(made, ast.Call) and read.culprit.dotted(made) in _NORMAL
    if not isinstance(made, ast.Call) or not is_normal or len(given) != 1:
        return None
    x, name = read.text(given[0]), source.of(normal)
    if [read.number(one) for one in made.args] == [0, 1]:
        return negative(x) if above else x
    first, second = (f"{name}.loc", atom(x)) if above else (atom(x), f"{name}.loc")
    return f"({first} - {second}) / {name}.scale"
