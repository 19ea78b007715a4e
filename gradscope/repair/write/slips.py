"""Slips of the pen in a backward's formula: one small edit that makes it the derivative.

Where no relation between the gradient and the truth tells what is wrong, the formula is edited at
one place after another, as one would look for the slip by eye: a dimension, a transpose, two
branches exchanged, another name, a factor that was left out. Nothing is claimed of an edit before
it has been run: most of them are wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain, islice

from gradscope.facts import Compared, SavedInstead
from gradscope.repair.write.candidate import Candidate
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.reading import factor
from gradscope.source.arguments import called

MOST = 40  # edits of one formula that are worth a run each

_OF_COMPLEX = ("complex", "cfloat", "fft", "polar", "1j")
_OPPOSITE = {">": "<=", "<": ">="}
_REDUCTIONS = ("softmax", "log_softmax", "sum", "mean", "cumsum", "cumprod", "flip", "roll")
_PRODUCTS = ("mm", "matmul", "bmm", "mv", "dot")
_TRANSPOSES = ("t", "transpose", "mT", "T", "conj")


def saved(culprit: Culprit, request: SavedInstead) -> Iterator[Candidate]:
    """`ctx.save_for_backward(x)` with the tensor that backward needs in the place of the one that
    it gets."""
    was, needed, forward = request.was, request.needed, _forward(culprit)
    if forward is None:
        return
    if request.is_output:
        returned = [n.value for n in ast.walk(forward) if isinstance(n, ast.Return)]
        needed = returned[-1].id if returned and isinstance(returned[-1], ast.Name) else ""
    for node in ast.walk(forward):
        if isinstance(node, ast.Call) and called(node) == "save_for_backward":
            for given in node.args:
                if needed.isidentifier() and isinstance(given, ast.Name) and given.id == was:
                    edit = culprit.replace(given, needed)
                    yield Candidate("backward-rewrite", f"save `{needed}`, not `{was}`", (edit,))


def slips(culprit: Culprit, formula: ast.expr, wrong_where: Compared | None) -> Iterator[Candidate]:
    """One edit of a formula each, the likelier first."""
    names = list(_names(culprit, formula))
    edits = chain(
        _bounded(culprit, formula, wrong_where),
        *(kind(culprit, node) for kind in _OF_A_NODE for node in ast.walk(formula)),
        *(_other_names(node, names) for node in _tensors(culprit, formula)),
        _with_factor(culprit, formula, names),
    )
    start, end = culprit.source.extent(formula)
    text = culprit.source.text
    for node, new in islice(edits, MOST):
        first, last = culprit.source.extent(node)
        whole = text[start:first] + new + text[last:end]
        edit = culprit.source.edit(start, end, whole)
        yield Candidate("backward-rewrite", f"compute `{_short(whole)}`", (edit,), is_guess=True)


_Change = tuple[ast.expr, str]  # what is replaced, and by what


def _bounded(
    culprit: Culprit, formula: ast.expr, wrong_where: Compared | None
) -> Iterator[_Change]:
    """`g * (x <= 6)` where the gradient is wrong for x > 6."""
    if wrong_where is not None and wrong_where.sign in _OPPOSITE and wrong_where.is_name:
        inside = f"({wrong_where.name} {_OPPOSITE[wrong_where.sign]} {wrong_where.bound:.4g})"
        yield formula, f"{_as_factor(culprit, formula)} * {inside}"


def _exchanged(culprit: Culprit, node: ast.AST) -> Iterator[_Change]:
    """`where(mask, b, a)` for `where(mask, a, b)`."""
    if isinstance(node, ast.Call) and called(node) == "where" and len(node.args) == 3:
        mask, one, other = map(culprit.source.of, node.args)
        yield node, f"{culprit.source.of(node.func)}({mask}, {other}, {one})"


def _conjugated(culprit: Culprit, node: ast.AST) -> Iterator[_Change]:
    is_complex = any(word in culprit.source.text for word in _OF_COMPLEX)
    if is_complex and isinstance(node, ast.Name) and _is_tensor(culprit, node):
        yield node, f"{node.id}.conj()"


def _signs(culprit: Culprit, node: ast.AST) -> Iterator[_Change]:
    """`-` for `+` between two terms, and the other way round."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        yield node, f"{culprit.source.of(node.left)} {sign} {culprit.text(node.right)}"


def _dimensions(culprit: Culprit, node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Call) and called(node) in _REDUCTIONS:
        given = [key.value for key in node.keywords if key.arg == "dim"] + node.args[-1:]
        held = _integer(given[0]) if given else None
        others = (dim for dim in (1, 0, -1, 2) if held is not None and dim != held)
        yield from ((given[0], str(dim)) for dim in others)


def _transposed(culprit: Culprit, node: ast.AST) -> Iterator[_Change]:
    """A factor of a matrix product with its transpose, or without."""
    factors: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        factors = [node.right, node.left]
    elif isinstance(node, ast.Call) and called(node) in _PRODUCTS:
        own = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_method = own is not None and culprit.names.dotted(own) is None
        factors = [*node.args, *([own] if is_method and own is not None else [])]
    for one in factors:
        bare = _untransposed(one)
        yield one, culprit.source.of(bare) if bare else f"{culprit.text(one)}.mT"


def _doubled(culprit: Culprit, node: ast.AST) -> Iterator[_Change]:
    """One term of a sum times 2, which is what becomes of a square."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        terms = (term for term in (node.left, node.right) if not isinstance(term, ast.Constant))
        yield from ((term, f"2 * {_as_factor(culprit, term)}") for term in terms)


_OF_A_NODE = (_exchanged, _conjugated, _signs, _dimensions, _transposed, _doubled)


def _untransposed(node: ast.expr) -> ast.expr | None:
    """`w` of `w.t()` and of `w.T`."""
    link = node.func if isinstance(node, ast.Call) else node
    is_transpose = isinstance(link, ast.Attribute) and link.attr in _TRANSPOSES
    return link.value if is_transpose and isinstance(link, ast.Attribute) else None


def _other_names(node: ast.expr, names: list[str]) -> Iterator[_Change]:
    if isinstance(node, ast.Name) and node.id in names:
        yield from ((node, name) for name in names if name != node.id)


def _with_factor(culprit: Culprit, formula: ast.expr, names: list[str]) -> Iterator[_Change]:
    """A factor more, of a term or of what a call gets: first those that the formula does not
    mention."""
    used = {node.id for node in ast.walk(formula) if isinstance(node, ast.Name)}
    for name in sorted(names, key=lambda name: name in used):
        for node in _tensors(culprit, formula):
            above = culprit.source.parents.get(node)
            operator = above.op if isinstance(above, ast.BinOp) else None
            product = f"{_as_factor(culprit, node)} * {name}"
            if isinstance(above, ast.Attribute) or isinstance(operator, ast.Div | ast.Pow):
                product = f"({product})"
            if not isinstance(operator, ast.Mult):
                yield node, product


def _as_factor(culprit: Culprit, node: ast.expr) -> str:
    return factor(culprit.source.of(node))


def _tensors(culprit: Culprit, formula: ast.expr) -> list[ast.expr]:
    """The parts of a formula that may stand for a tensor, the whole of it first."""
    parts = (node for node in ast.walk(formula) if isinstance(node, ast.expr))
    return [node for node in parts if _is_tensor(culprit, node)]


def _is_tensor(culprit: Culprit, node: ast.expr) -> bool:
    above = culprit.source.parents.get(node)
    is_called = isinstance(above, ast.Call) and above.func is node
    is_module = isinstance(node, ast.Name) and node.id in culprit.names.imported
    is_tensor = isinstance(node, ast.Name | ast.Call | ast.BinOp | ast.Subscript)
    return is_tensor and not (is_called or is_module)


def _names(culprit: Culprit, formula: ast.expr) -> Iterator[str]:
    """What backward has unpacked or computed before it comes to the formula. grad_output is left
    out: a gradient is linear in it, and hardly ever mistaken for another name."""
    where = culprit.source.nodes.function(formula)
    if not isinstance(where, ast.FunctionDef):
        return
    stored = (
        node
        for node in ast.walk(where)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    for node in sorted(stored, key=lambda node: (node.lineno, node.col_offset)):
        if node.lineno < formula.lineno:
            yield node.id


def _forward(culprit: Culprit) -> ast.FunctionDef | None:
    """The forward beside the backward in which the finding is."""
    location = culprit.finding.location
    for node in culprit.source.nodes.every(ast.ClassDef):
        if location is not None:
            if node.lineno <= location.line <= (node.end_lineno or node.lineno):
                functions = [n for n in node.body if isinstance(n, ast.FunctionDef)]
                return next((n for n in functions if n.name == "forward"), None)
    return None


def _integer(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None


def _short(text: str) -> str:
    return text if len(text) <= 60 and "\n" not in text else "another formula"
