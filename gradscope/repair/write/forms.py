"""The composite expressions that have a stable form: `log(softmax(z))` is `log_softmax(z)`."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass

from gradscope.repair.write.reading import Reading


@dataclass(frozen=True, slots=True)
class Form:
    """A composite expression. `ends` are the ops that it may end in, `ops` all that it is made of.

    `write` gives the stable form of an expression that ends so, None where it is another one.
    """

    write: Callable[[Reading, ast.expr], str | None]
    ends: frozenset[str]
    ops: frozenset[str]


def _log_softmax(read: Reading, node: ast.expr) -> str | None:
    inner = read.argument(node, "log")
    found = inner is not None and read.op(inner, "softmax")
    if not found:
        return None
    dim = read.dim(found)
    return f"torch.log_softmax({read.text(found.positional[0])}, {dim})" if dim else None


def _log_sigmoid(read: Reading, node: ast.expr) -> str | None:
    inner = read.argument(node, "log")
    operand = inner is not None and read.argument(inner, "sigmoid")
    if not operand:
        return None
    return f"torch.nn.functional.logsigmoid({read.text(operand)})"


def _log_one_minus_sigmoid(read: Reading, node: ast.expr) -> str | None:
    """log(1 - sigmoid(z)), and log1p(-sigmoid(z))."""
    inner = read.argument(node, "log", "log1p")
    if inner is None:
        return None
    operand = None
    if read.op(node, "log1p"):
        negated = read.argument(inner, "neg")
        operand = negated is not None and read.argument(negated, "sigmoid")
    elif (found := read.op(inner, "sub")) and read.number(found.positional[0]) == 1:
        operand = read.argument(found.positional[1], "sigmoid")
    if not operand:
        return None
    return f"torch.nn.functional.logsigmoid(-{read.culprit.text(operand)})"


def _softplus(read: Reading, node: ast.expr) -> str | None:
    """log(1 + exp(z)), log(exp(z) + 1) and log1p(exp(z))."""
    inner = read.argument(node, "log", "log1p")
    if inner is None:
        return None
    operand = None
    if read.op(node, "log1p"):
        operand = read.argument(inner, "exp")
    elif found := read.op(inner, "add"):
        for one, other in (found.positional[:2], found.positional[1::-1]):
            if read.number(one) == 1:
                operand = read.argument(other, "exp")
    return f"torch.nn.functional.softplus({read.text(operand)})" if operand else None


def _logsumexp(read: Reading, node: ast.expr) -> str | None:
    inner = read.argument(node, "log")
    found = inner is not None and read.op(inner, "sum")
    operand = found and read.argument(found.positional[0], "exp")
    if not found or not operand:
        return None
    dim = read.dim(found)
    if dim is None:
        return f"torch.logsumexp({read.culprit.text(operand)}.flatten(), 0)"
    keep = ", keepdim=True" if "keepdim" in found.keywords else ""
    return f"torch.logsumexp({read.text(operand)}, {dim}{keep})"


def _log_prod(read: Reading, node: ast.expr) -> str | None:
    """log(x.prod(dim)): the product of many factors leaves the dtype, the sum of logs does not."""
    inner = read.argument(node, "log")
    found = inner is not None and read.op(inner, "prod")
    if not found:
        return None
    dim = read.dim(found)
    keep = ", keepdim=True" if "keepdim" in found.keywords else ""
    return f"torch.log({read.text(found.positional[0])}).sum({dim or ''}{keep if dim else ''})"


def _logaddexp(read: Reading, node: ast.expr) -> str | None:
    """log(exp(a) + exp(b)), also scaled by a number, as in log((exp(d) + exp(-d)) / 2)."""
    inner = read.argument(node, "log")
    if inner is None:
        return None
    shift = 0.0
    if scaled := read.op(inner, "div", "mul"):
        factor = read.number(scaled.positional[1])
        if factor is None or factor <= 0:
            return None
        shift = math.log(factor) * (1 if scaled.name == "mul" else -1)
        inner = scaled.positional[0]
    found = read.op(inner, "add")
    if not found or len(found.positional) != 2:
        return None
    first, second = (read.argument(part, "exp") for part in found.positional)
    if first is None or second is None:
        return None
    return _shifted(f"torch.logaddexp({read.text(first)}, {read.text(second)})", shift)


def _log_cosh(read: Reading, node: ast.expr) -> str | None:
    inner = read.argument(node, "log")
    operand = inner is not None and read.argument(inner, "cosh")
    if not operand:
        return None
    negative = f"-{read.culprit.text(operand)}"
    return _shifted(f"torch.logaddexp({read.text(operand)}, {negative})", -math.log(2))


def _shifted(text: str, shift: float) -> str:
    if not shift:
        return text
    return f"{text} {'+' if shift > 0 else '-'} {abs(shift)!r}"


def _softmax(read: Reading, node: ast.expr) -> str | None:
    """exp(z) / exp(z).sum(dim, keepdim=True), where each number meets the sum of its own row."""
    found = read.op(node, "div")
    if not found or len(found.positional) != 2:
        return None
    operand = read.argument(found.positional[0], "exp")
    total = read.op(found.positional[1], "sum")
    summed = total and read.argument(total.positional[0], "exp")
    if operand is None or not total or not summed or not read.same(operand, summed):
        return None
    dim = read.dim(total)
    if dim is None:
        flat = f"torch.softmax({read.culprit.text(operand)}.flatten(), 0)"
        return f"{flat}.view_as({read.culprit.text(operand)})"
    aligned = dim == "0" or "keepdim" in total.keywords
    return f"torch.softmax({read.text(operand)}, {dim})" if aligned else None


def _sigmoid(read: Reading, node: ast.expr) -> str | None:
    """1 / (1 + exp(-z)), and exp(z) / (1 + exp(z))."""
    found = read.op(node, "div")
    if not found or len(found.positional) != 2:
        return None
    above, below = found.positional
    total = read.op(below, "add")
    if not total or len(total.positional) != 2:
        return None
    parts = [part for part in total.positional if read.number(part) != 1]
    operand = read.argument(parts[0], "exp") if len(parts) == 1 else None
    if operand is None:
        return None
    if read.number(above) == 1:
        negated = read.argument(operand, "neg")
        text = read.text(negated) if negated is not None else f"-{read.culprit.text(operand)}"
        return f"torch.sigmoid({text})"
    numerator = read.argument(above, "exp")
    same = numerator is not None and read.same(numerator, operand)
    return f"torch.sigmoid({read.text(operand)})" if same else None


def _cross_entropy_with_logits(read: Reading, node: ast.expr) -> str | None:
    found = read.op(node, "binary_cross_entropy")
    operand = found and read.argument(found.positional[0], "sigmoid")
    if not found or not operand:
        return None
    rest = [read.text(part) for part in found.positional[1:]]
    rest += [f"{name}={read.text(value)}" for name, value in found.keywords.items()]
    name = "torch.nn.functional.binary_cross_entropy_with_logits"
    return f"{name}({', '.join([read.text(operand), *rest])})"


def _log_expm1(read: Reading, node: ast.expr) -> str | None:
    """log(exp(z) - 1), the inverse of softplus."""
    inner = read.argument(node, "log")
    if inner is None:
        return None
    found = read.op(inner, "sub")
    operand = read.argument(inner, "expm1")
    if found and read.number(found.positional[1]) == 1:
        operand = read.argument(found.positional[0], "exp")
    if not operand:
        return None
    text = read.culprit.text(operand)
    return f"{text} + torch.log(-torch.expm1(-{text}))"


def _log_bessel(read: Reading, node: ast.expr) -> str | None:
    """log(c * i0(z)), the normaliser of a von Mises distribution."""
    inner = read.argument(node, "log")
    if inner is None:
        return None
    bessel = [part for part in _factors(read, inner) if read.op(part, "i0")]
    operand = read.argument(bessel[0], "i0") if len(bessel) == 1 else None
    if operand is None:
        return None
    scaled = f"torch.special.i0e({read.text(operand)})"
    product = " * ".join(
        scaled if part is bessel[0] else read.factor(part) for part in _factors(read, inner)
    )
    return f"torch.log({product}) + {read.culprit.text(operand)}.abs()"


def _log_determinant(read: Reading, node: ast.expr) -> str | None:
    """logdet(z) where the determinant is negative; where it is 0, both forms are infinite."""
    # The spelling decides what is written in its place, and only that: the patch is run.
    if not isinstance(node, ast.Call) or not read.text(node.func).endswith("logdet"):
        return None
    if read.culprit.finding.name == "degenerate-decomposition":
        return None
    found = read.op(node, "det")
    is_absolute = read.text(node.func).endswith("slogdet")
    if not found or is_absolute:
        return None
    return f"torch.linalg.slogdet({read.text(found.positional[0])}).logabsdet"


def _factors(read: Reading, node: ast.expr) -> list[ast.expr]:
    found = read.op(node, "mul")
    if not found or len(found.positional) != 2:
        return [node]
    return [part for side in found.positional for part in _factors(read, side)]


def _norm(read: Reading, node: ast.expr) -> str | None:
    """sqrt((z ** 2).sum(dim)), whose slope at 0 is infinite; that of PyTorch's norm is 0."""
    inner = read.argument(node, "sqrt")
    if (power := read.op(node, "pow")) and read.number(power.positional[-1]) == 0.5:
        inner = power.positional[0]
    found = inner is not None and read.op(inner, "sum")
    squared = found and _squared(read, found.positional[0])
    dim = read.dim(found) if found else None
    if not found or not squared or not dim:
        return None
    keep = ", keepdim=True" if "keepdim" in found.keywords else ""
    return f"torch.linalg.vector_norm({read.text(squared)}, dim={dim}{keep})"


def _squared(read: Reading, node: ast.expr) -> ast.expr | None:
    """z of z ** 2, z.pow(2), z.square() and z * z."""
    if (product := read.op(node, "mul")) and read.same(*product.positional):
        return product.positional[0]
    power = read.op(node, "pow")
    if not power:
        return None
    exponents = [read.number(part) for part in power.positional[1:]]
    return power.positional[0] if exponents in ([], [2]) else None


def _form(write: Callable[[Reading, ast.expr], str | None], ends: str, made_of: str = "") -> Form:
    return Form(write, frozenset(ends.split()), frozenset(f"{ends} {made_of}".split()))


FORMS: tuple[Form, ...] = (
    _form(_log_softmax, "log", "softmax"),
    _form(_log_sigmoid, "log", "sigmoid"),
    _form(_log_one_minus_sigmoid, "log log1p", "sub neg sigmoid"),
    _form(_softplus, "log log1p", "add exp"),
    _form(_logsumexp, "log", "sum exp"),
    _form(_log_prod, "log", "prod"),
    _form(_logaddexp, "log", "div mul add exp"),
    _form(_log_cosh, "log", "cosh"),
    _form(_log_expm1, "log", "sub exp expm1"),
    _form(_log_bessel, "log", "mul i0"),
    _form(_log_determinant, "det"),
    _form(_softmax, "div", "exp sum"),
    _form(_sigmoid, "div", "add exp neg"),
    _form(_cross_entropy_with_logits, "binary_cross_entropy", "sigmoid"),
)
# What a guard does as well, at the cost of another gradient: it is written, and does not lead.
BESIDE: tuple[Form, ...] = (_form(_norm, "sqrt pow", "sum mul pow"),)
