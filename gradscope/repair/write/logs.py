"""Logarithms written without what they take them of: `log(softmax(z))` is `log_softmax(z)`.

The rules are those of algebra: a product becomes a sum of logarithms, a sum of exponentials a
`logsumexp`, what only moves elements stays around. Each is exact, so that any composite is.
"""

import ast
import math
from collections.abc import Callable, Mapping
from contextlib import suppress

from gradscope.ops.patterns import EPSILON
from gradscope.repair.write.culprit import MOVES
from gradscope.repair.write.forms import fit, in_form
from gradscope.repair.write.normal import log_between, log_cdf, log_written
from gradscope.repair.write.reading import Reading, Rebound, atom, negative, term
from gradscope.source.arguments import Spelled, plainly, spelled

JOINS = frozenset("cat concat concatenate hstack stack vstack".split())
# What a logarithm undoes at least in part. Without one of them nothing is won.
UNDONE = frozenset(
    "cdf cosh cumprod det erf erfc exp expm1 i0 i1 ndtr prod sigmoid sinh softmax tanh".split()
)
OPS = frozenset("abs add cumsum div log log1p mean mul neg pow reciprocal sqrt sub sum".split())
OPS |= UNDONE | MOVES | JOINS | {"where"}


def logarithm(read: Reading, node: ast.expr) -> str | None:
    """The stable form of `log(...)` and `log1p(...)`; None where it has none."""
    found = read.op(node, "log", "log1p")
    if found is None:
        return None
    operand = found.positional[0]
    return _plus_one(read, operand) if found.name == "log1p" else log_of(read, operand)


def log_of(read: Reading, node: ast.expr) -> str | None:
    """The logarithm of an expression, as text; None where nothing in it is undone by that."""
    if isinstance(node, ast.Name) and node.id in read.carried:
        return read.culprit.source.of(node)
    if (text := read.rewrite(node, lambda given: _log_of(read, given))) is not None:
        return text
    given = read.given(node)
    while isinstance(given, ast.Name):
        given = read.given(given)
    with suppress(Rebound):
        # `p = cat([p, p])` means something else by now, and log(p) may be written without that.
        if given is not None and (found := log_of(read, given)) is not None:
            return found
    return _log_of(read, read.meaning(node))


def _log_of(read: Reading, node: ast.expr) -> str | None:
    if isinstance(node, ast.Subscript):
        return _moved(read, node, node.value)
    if isinstance(node, ast.Attribute) and node.attr in _TURNED:
        return _moved(read, node, node.value)
    found = plainly(read.culprit.source, node)
    if not found.positional:
        return None
    if found.name in MOVES and not (read.carried and found.name == "diag"):
        return _moved(read, node, found.positional[0])
    if found.name in JOINS:
        return _joined(read, node, found)
    operand = found.positional[0]
    if read.carried and found.name in _NOTHING:
        return f"{read.text(node)} - {far(read.culprit.dtype)}"
    if (undone := in_form(read, _UNDONE, node) or log_written(read, node)) is not None:
        return undone
    if found.name in _TIMES:
        inner = log_of(read, operand)
        return inner and f"{_TIMES[found.name]}{atom(inner)}"
    rule = _RULES.get(found.name)
    return rule(read, found) if rule is not None else None


def _moved(read: Reading, node: ast.expr, operand: ast.expr) -> str | None:
    """`log(p[i])` is `log(p)[i]`."""
    inner = log_of(read, operand)
    return inner and _with(read, node, {operand: atom(inner)})


def _joined(read: Reading, node: ast.expr, found: Spelled) -> str | None:
    """`log(cat([p, q]))` is `cat([log(p), log(q)])`."""
    parts = found.positional[0]
    inner = {one: log_of(read, one) for one in getattr(parts, "elts", ())}
    if not any(inner.values()):
        return None
    texts = {
        one: text or zeros(read, spelled(read.culprit.source, one)) or read.log(one)
        for one, text in inner.items()
    }
    return _with(read, node, texts)


def _with(read: Reading, node: ast.expr, texts: Mapping[ast.expr, str]) -> str:
    """The text of a node with some of its parts written otherwise."""
    for other in ast.iter_child_nodes(node):
        if isinstance(other, ast.expr) and not any(one in texts for one in ast.walk(other)):
            read.text(other)
    return read.culprit.source.written(node, texts)


def _pad(read: Reading, found: Spelled) -> str | None:
    """With zeros, of a recurrence."""
    inner = log_of(read, found.positional[0])
    if inner is None or not read.carried or len(found.positional) != 2 or found.keywords:
        return None
    return f"torch.nn.functional.pad({inner}, {read.rest(found)}, value=-{far(read.culprit.dtype)})"


def _softmax(read: Reading, found: Spelled) -> str | None:
    rest = read.rest(found)
    return read.call("log_softmax", read.text(found.positional[0]), rest) if rest else None


def _det(read: Reading, found: Spelled) -> str:
    """Also of one that was negative: a change of volume has a size alone."""
    matrix = read.text(found.positional[0])
    is_negative = read.culprit.values.get("self", 0.0) < 0
    of_size = f"torch.linalg.slogdet({matrix}).logabsdet"
    return of_size if is_negative else read.call("logdet", matrix)


def _mm(read: Reading, found: Spelled) -> str | None:
    """Of the matrices of a recurrence: elsewhere the sum over all products takes too much room."""
    first, second = found.positional[:2]
    one, other = log_of(read, first), log_of(read, second)
    if (rows := scaling(read, first)) is not None and other is not None:
        return f"{atom(rows)}.unsqueeze(-1) + {term(other)}"
    if (columns := scaling(read, second)) is not None and one is not None:
        return f"{one} + {term(columns)}"
    if not read.carried or (one is None and other is None):
        return None
    one = one or read.log(first)
    other = other or read.log(second)
    if read.rank == 1 and isinstance(second, ast.Name) and second.id in read.carried:
        return f"torch.logsumexp({one} + {term(other)}, dim=-1)"
    other = f"{atom(other)}.unsqueeze(-3)" if read.rank == 3 else term(other)
    return f"torch.logsumexp({atom(one)}.unsqueeze(-1) + {other}, dim=-2)"


def scaling(read: Reading, node: ast.expr) -> str | None:
    """The logarithm of the factors of `diag(factors)`, by which a recurrence's matrix is scaled."""
    factors = read.argument(node, "diag") if read.carried else None
    return log_of(read, factors) if factors is not None else None


def _where(read: Reading, found: Spelled) -> str | None:
    """Where each of the two has one: the slope of a plain `log(b)` at 0 would be inf, though `b` is
    not chosen there."""
    if len(found.positional) != 3:
        return None
    first, second, third = found.positional
    condition, one, other = (second, first, third) if found.method else (first, second, third)
    inner = [log_of(read, branch) or settled(read, branch) for branch in (one, other)]
    if None in inner or not any(log_of(read, branch) for branch in (one, other)):
        return None
    return f"torch.where({read.text(condition)}, {inner[0]}, {inner[1]})"


def _ones(read: Reading, found: Spelled) -> str | None:
    return zeros(read, found) if read.carried else None


def _abs(read: Reading, found: Spelled) -> str | None:
    """Of a determinant, which may be negative, and of a product."""
    if (matrix := read.argument(found.positional[0], "det")) is not None:
        return f"torch.linalg.slogdet({read.text(matrix)}).logabsdet"
    factors = read.op(found.positional[0], "prod")
    if factors is None:
        return None
    size = f"{atom(read.text(factors.positional[0]))}.abs()"
    return f"{read.call('log', size)}.sum({read.rest(factors)})"


def _prod(read: Reading, found: Spelled) -> str:
    """Of many factors the product leaves the dtype, the sum of their logarithms does not."""
    inner = log_of(read, found.positional[0]) or read.log(found.positional[0])
    is_whole = found.name == "prod"
    return (
        f"{atom(inner)}.sum({read.rest(found)})"
        if is_whole
        else read.call("cumsum", inner, read.rest(found))
    )


def _cumsum(read: Reading, found: Spelled) -> str | None:
    inner = log_of(read, found.positional[0])
    return inner and read.call("logcumsumexp", inner, read.rest(found))


def _sum(read: Reading, found: Spelled) -> str | None:
    if (chosen := _chosen(read, found)) is not None:
        return chosen
    inner = log_of(read, found.positional[0])
    if inner is None:
        return None
    if rest := read.rest(found):
        return read.call("logsumexp", inner, rest)
    return read.call("logsumexp", f"{atom(inner)}.flatten()", "0")


def _mean(read: Reading, found: Spelled) -> str | None:
    """The sum, over the number of what is summed."""
    if (inner := log_of(read, found.positional[0])) is None:
        return None
    rest = read.rest(found)
    over, dims = (inner, rest) if rest else (f"{atom(inner)}.flatten()", "0")
    total = read.call("logsumexp", over, dims)
    log, dim = read.culprit.names.spell("math.log"), dims.removeprefix("dim=")
    if log is None or not dim.removeprefix("-").isdecimal():
        return f"{total} - torch.logsumexp(torch.zeros_like({over}), {dims})"
    return f"{total} - {log}({f'{atom(inner)}.shape[{dim}]' if rest else f'{atom(inner)}.numel()'})"


def _chosen(read: Reading, found: Spelled) -> str | None:
    """`log((p * one_hot).sum(1))` is `(log(p) * one_hot).sum(1)`: one element of each row is it."""
    product = read.op(found.positional[0], "mul")
    factors = product.positional if product is not None else ()
    for hot, other in zip(factors, reversed(factors), strict=True):
        inner = log_of(read, other) if _is_one_hot(read, hot) else None
        if inner is not None:
            return f"({atom(inner)} * {read.factor(hot)}).sum({read.rest(found)})"
    return None


def _is_one_hot(read: Reading, node: ast.expr) -> bool:
    """Also after a cast."""
    cast = read.op(node, "float", "double", "to", "type_as")
    return read.op(cast.positional[0] if cast else node, "one_hot") is not None


def _mul(read: Reading, found: Spelled) -> str | None:
    first, second = found.positional[:2]
    one, other = log_of(read, first), log_of(read, second)
    if one is None or other is None:
        inner, plain = (one, second) if one is not None else (other, first)
        return inner and _scaled(read, inner, "+", plain)
    return f"{one} + {term(other)}"


def _div(read: Reading, found: Spelled) -> str | None:
    above, below = found.positional[:2]
    one, other = log_of(read, above), log_of(read, below)
    if one is None:
        is_one, plain = read.number(above) == 1, read.log(above)
        return other and (negative(other) if is_one else f"{plain} - {term(other)}")
    return _scaled(read, one, "-", below) if other is None else f"{one} - {term(other)}"


def _scaled(read: Reading, inner: str, sign: str, node: ast.expr) -> str:
    """A logarithm, and that of a factor (or divisor) which it does not undo."""
    if (number := read.number(node)) is None or number <= 0:
        return f"{inner} {sign} {read.log(node)}"
    shift = math.log(number)
    sign = sign if shift > 0 else "+-"[sign == "+"]
    return f"{inner} {sign} {abs(shift)!r}" if shift else inner


def _pow(read: Reading, found: Spelled) -> str | None:
    inner = log_of(read, found.positional[0])
    if inner is None or len(found.positional) < 2:
        return inner and f"2 * {atom(inner)}"  # `square`
    return f"{read.factor(found.positional[1])} * {atom(inner)}"


def _add(read: Reading, found: Spelled) -> str | None:
    first, second = found.positional[:2]
    for one, other in ((first, second), (second, first)):
        number = read.number(one)
        if number == 1:
            return _plus_one(read, other)
        if number is not None and 0 < number <= EPSILON:  # it has guarded this logarithm
            return log_of(read, other)
    logs = log_of(read, first), log_of(read, second)
    return None if None in logs else f"torch.logaddexp({logs[0]}, {logs[1]})"


def _plus_one(read: Reading, node: ast.expr) -> str | None:
    """log(1 + node)."""
    if (negated := read.argument(node, "neg")) is not None:
        return _complement(read, negated)
    if (form := in_form(read, _PLUS_ONE, node)) is not None:
        return form
    inner = log_of(read, node)
    # A factor may be 0, or below it.
    return None if inner is None or read.has_plain_log else f"torch.nn.functional.softplus({inner})"


def _complement(read: Reading, node: ast.expr) -> str | None:
    """log(1 - node)."""
    if (again := fit(read, "1 - p", node)) is not None:
        return log_of(read, again["p"])
    if (found := read.op(node, "cdf")) is not None:
        return log_cdf(read, found, above=True)
    return in_form(read, _COMPLEMENTS, node) or log_written(read, node, above=True)


def _sub(read: Reading, found: Spelled) -> str | None:
    """Of 1 - p, and of what a distribution has between two numbers."""
    first, second = found.positional[:2]
    if read.number(first) == 1:
        return _complement(read, second)
    return log_between(read, first, second)


_UNDONE = {
    "cosh(z)": f"torch.logaddexp({{z}}, -{{z:atom}}) - {math.log(2)!r}",
    "exp(z)": "{z}",
    "expm1(z)": "{z} + torch.log(-torch.expm1(-{z:atom}))",
    "exp(z) - 1": "{z} + torch.log(-torch.expm1(-{z:atom}))",
    "exp(a) - exp(b)": "{a} + torch.log(-torch.expm1({b} - {a:term}))",
    "sigmoid(a) - sigmoid(b)": (
        "torch.nn.functional.logsigmoid({a}) + torch.nn.functional.logsigmoid(-{b:atom})"
        " + torch.log(-torch.expm1({b} - {a:term}))"
    ),
    "i0(z)": "torch.log(torch.special.i0e({z})) + {z:atom}.abs()",
    "i1(z)": "torch.log(torch.special.i1e({z})) + {z:atom}.abs()",
    "erfc(z)": f"torch.special.log_ndtr(-{math.sqrt(2)!r} * {{z:atom}}) + {math.log(2)!r}",
    "sigmoid(z)": "torch.nn.functional.logsigmoid({z})",
    "sinh(z)": f"{{z}} + torch.log(-torch.expm1(-2 * {{z:atom}})) - {math.log(2)!r}",
}
_PLUS_ONE = {
    "exp(z)": "torch.nn.functional.softplus({z})",
    "erf(z)": f"torch.special.log_ndtr({math.sqrt(2)!r} * {{z:atom}}) + {math.log(2)!r}",
}
_COMPLEMENTS = {
    "sigmoid(z)": "torch.nn.functional.logsigmoid(-{z:atom})",
    "exp(z)": "log(-torch.expm1({z}))",
    "erf(z)": _UNDONE["erfc(z)"],
    "1 / (1 + exp(z))": "torch.nn.functional.logsigmoid({z})",
    # What is left is 1 / cosh(z) ** 2.
    "tanh(z) ** 2": f"{math.log(4)!r} - 2 * torch.logaddexp({{z}}, -{{z:atom}})",
}
_TURNED = ("T", "mT")
_NOTHING = ("new_zeros", "zeros", "zeros_like")
_TIMES = {"reciprocal": "-", "sqrt": "0.5 * "}  # that of the operand
_RULES: dict[str, Callable[[Reading, Spelled], str | None]] = {
    "abs": _abs,
    "add": _add,
    "cumprod": _prod,
    "cumsum": _cumsum,
    "det": _det,
    "div": _div,
    "mean": _mean,
    "mm": _mm,
    "mul": _mul,
    "cdf": log_cdf,
    "ones": _ones,
    "ones_like": _ones,
    "pad": _pad,
    "pow": _pow,
    "prod": _prod,
    "softmax": _softmax,
    "sub": _sub,
    "sum": _sum,
    "where": _where,
}


def settled(read: Reading, node: ast.expr) -> str | None:
    """The logarithm of a number above 0, or of ones."""
    if (number := read.number(node)) is not None:
        return f"{math.log(number)!r}" if number > 0 else None
    return zeros(read, spelled(read.culprit.source, node))


def zeros(read: Reading, found: Spelled) -> str | None:
    """The logarithm of ones."""
    if found.name not in ("ones", "ones_like") or not found.positional:
        return None
    given = ", ".join(filter(None, (read.text(found.positional[0]), read.rest(found))))
    return f"torch.{found.name.replace('ones', 'zeros')}({given})"


def far(dtype: str) -> str:
    """For minus the logarithm of 0, which has no slope in a recurrence: a number whose negative no
    sum of exponentials notices, and of which some can be added up."""
    return "1e4" if dtype == "float16" else "1e30"
