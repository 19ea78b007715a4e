"""Updates that a program writes by hand: `w -= 0.1 * w.grad`, `w.add_(w.grad, alpha=-lr)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradscope.facts import Location
from gradscope.source.meaning import definition
from gradscope.source.text import Source


def rate_by_hand(text: Source, place: Location) -> ast.Constant | None:
    """The outermost factor of an update that is a number, or a name for one."""
    around = [
        node
        for node in ast.walk(text.tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr)
        and node.lineno <= place.line <= (node.end_lineno or node.lineno)
    ]
    numbers = (_number(text, factor) for node in around for factor in _factors(node))
    return next((one for one in numbers if one is not None), None)


def _factors(update: ast.stmt) -> Iterator[ast.expr]:
    for node in ast.walk(update):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield from (node.left, node.right)
        elif isinstance(node, ast.keyword) and node.arg == "alpha":
            yield node.value


def _number(text: Source, node: ast.expr) -> ast.Constant | None:
    """The literal that a factor is, by its sign and its name."""
    seen: set[ast.AST] = set()
    given: ast.expr | None = node
    while isinstance(given, ast.UnaryOp | ast.Name) and given not in seen:
        seen.add(given)  # two names may be given each other
        given = given.operand if isinstance(given, ast.UnaryOp) else definition(text, given)
    is_number = isinstance(given, ast.Constant) and type(given.value) in (int, float)
    return given if is_number and isinstance(given, ast.Constant) and given.value else None
