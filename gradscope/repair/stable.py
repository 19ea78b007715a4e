"""Composite expressions and their stable form: `log(softmax(z))` -> `log_softmax(z)`.

A part may stand on an earlier line (`p = softmax(z)`, then `log(p)`): a name is read as what its
function gives it, as long as that still means the same where it is used.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gradscope.repair.candidate import Candidate
from gradscope.repair.culprit import Culprit
from gradscope.repair.splice import keyword
from gradscope.source.masks import definition, in_reach
from gradscope.source.operands import Spelled, canonical, spelled
from gradscope.source.spans import ancestors, scope


@dataclass
class Reading:
    """Reads one expression, through names, and remembers which nodes it has looked at."""

    culprit: Culprit
    place: ast.expr
    seen: set[ast.AST] = field(default_factory=set)

    def meaning(self, node: ast.expr) -> ast.expr:
        """What a name stands for here; the node itself where that is not known."""
        self.seen.add(node)
        if not isinstance(node, ast.Name):
            return node
        given = definition(self.culprit.source, node)
        if given is None or not in_reach(self.culprit.source, given, given):
            return node
        if not _lasts(self.culprit, given, self.place):
            return node
        return self.meaning(given)

    def op(self, node: ast.expr, *names: str) -> Spelled | None:
        """The op that a node writes, if it is one of these."""
        found = spelled(self.culprit.source, self.meaning(node))
        return found if found and found.name in names and found.positional else None

    def argument(self, node: ast.expr, *names: str) -> ast.expr | None:
        """The first operand of a node that writes one of these ops."""
        found = self.op(node, *names)
        return found.positional[0] if found else None

    def number(self, node: ast.expr) -> float | None:
        node = self.meaning(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        return None

    def text(self, node: ast.expr) -> str:
        return self.culprit.source.of(node)

    def same(self, first: ast.expr, second: ast.expr) -> bool:
        return ast.dump(self.meaning(first)) == ast.dump(self.meaning(second))

    def dim(self, found: Spelled) -> str | None:
        """The `dim` argument of a reduction as text."""
        node = found.keywords.get("dim") or found.keywords.get("axis")
        if node is None and len(found.positional) > 1:
            node = found.positional[1]
        return self.text(node) if node is not None else None


def _lasts(culprit: Culprit, given: ast.expr, place: ast.expr) -> bool:
    """Whether the names of an earlier expression still hold the same values at `place`."""
    lines = range(given.lineno, place.lineno)
    names = {part.id for part in ast.walk(given) if isinstance(part, ast.Name)}
    stored = (
        part
        for part in ast.walk(scope(culprit.source, place))
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and part.id in names
    )
    return not any(part.lineno in lines for part in stored)


Form = Callable[[Reading, ast.expr], str | None]


def rewritten(culprit: Culprit) -> Iterator[Candidate]:
    """Every expression of the culprit's function that has a stable form and holds the culprit."""
    if culprit.node is None:
        return
    if canonical(culprit.finding.op) == "ctc_loss":
        yield from with_zero_infinity(culprit)
        return
    for node in _expressions(culprit):
        for form in FORMS:
            reading = Reading(culprit, node)
            template = form(reading, node)
            if template is None or culprit.node not in reading.seen:
                continue
            text = culprit.torch(template)
            if text is None or "\n" in text:
                continue
            title = f"compute it in one stable step: `{text}`"
            yield Candidate("stable-op", title, (culprit.replace(node, text),))
            break


def with_zero_infinity(culprit: Culprit) -> Iterator[Candidate]:
    """CTC has no alignment for a target longer than its input, and an argument that says so."""
    names = ("torch.nn.functional.ctc_loss", "torch.nn.CTCLoss")
    for node in ast.walk(culprit.source.tree):
        if isinstance(node, ast.Call) and culprit.names.dotted(node.func) in names:
            title = "let samples without any alignment count as 0"
            edit = keyword(culprit.source, node, "zero_infinity", "True")
            yield Candidate("stable-op", title, (edit,))


def _expressions(culprit: Culprit) -> list[ast.expr]:
    """The largest first, from the culprit outwards to what else its function computes."""
    assert culprit.node is not None
    around = [
        node for node in ancestors(culprit.source, culprit.node) if isinstance(node, ast.expr)
    ]
    own = [culprit.node] if isinstance(culprit.node, ast.expr) else []
    others = [
        node
        for node in ast.walk(scope(culprit.source, culprit.node))
        if isinstance(node, ast.expr) and node not in around and node is not culprit.node
    ]
    return [*reversed(around), *own, *others]


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


FORMS: tuple[Form, ...] = (
    _log_softmax,
    _log_sigmoid,
    _log_one_minus_sigmoid,
    _softplus,
    _logsumexp,
    _log_prod,
    _logaddexp,
    _log_cosh,
    _softmax,
    _sigmoid,
    _cross_entropy_with_logits,
)
