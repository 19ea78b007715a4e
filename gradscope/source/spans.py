"""From a span that a frame reported to the expression in the tree, and to the span to show."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import Location
from gradscope.source.text import Source

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


def expression(source: Source, location: Location) -> ast.expr | ast.AugAssign | None:
    """The expression (or `x /= y`) that a span covers exactly.

    The span may be the whole of a method chain, as `co_positions` has it, or trimmed to its last
    call, as `shown` has it. None where nothing fits, or where the tree's places are unreliable
    (inside f-strings before Python 3.12) and the text there is something else.
    """
    if not 0 < location.line <= location.end_line <= len(source.lines):
        return None
    start = source.offset(location.line, location.col)
    end = source.offset(location.end_line, location.end_col)
    found = [node for node in _nodes(source) if source.extent(node)[1] == end]
    exact = [node for node in found if source.extent(node)[0] == start]
    trimmed = [node for node in found if isinstance(node, ast.Call) and _dot(source, node) == start]
    # `(a.b())` and its inner call cannot share a span, but `x` as an expression statement
    # and as a name can: the outermost is walked first.
    return next((node for node in (*exact, *trimmed) if _reads_as_itself(source, node)), None)


def _nodes(source: Source) -> Iterator[ast.expr | ast.AugAssign]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.expr | ast.AugAssign) and node.end_lineno is not None:
            yield node


def _reads_as_itself(source: Source, node: ast.expr | ast.AugAssign) -> bool:
    if isinstance(node, ast.AugAssign):
        return True
    try:
        again = ast.parse(f"({source.of(node)}\n)", mode="eval").body
    except SyntaxError:
        return False
    return ast.dump(again) == ast.dump(node).replace("ctx=Store()", "ctx=Load()")


def _dot(source: Source, call: ast.Call) -> int | None:
    """Where the last link `.sqrt()` of a chain starts."""
    if not isinstance(call.func, ast.Attribute):
        return None
    name_at = source.extent(call.func)[1] - len(call.func.attr)
    return source.text.rfind(".", 0, name_at)


def shown(source: Source, location: Location) -> Location:
    """The span to point at: of a chain `a.b().sqrt()` only the last link."""
    node = expression(source, location)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return location
    receiver = node.func.value
    chained = any(isinstance(part, ast.Call) for part in ast.walk(receiver))
    dot = _dot(source, node)
    if dot is None or not (chained or receiver.lineno != node.end_lineno):
        return location
    line, col = source.place(dot)
    return replace(location, line=line, col=col)


def statement(source: Source, node: ast.AST) -> ast.stmt:
    """The statement that holds a node."""
    while not isinstance(node, ast.stmt):
        node = source.parents[node]
    return node


def ancestors(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """The nodes around a node, innermost first."""
    while node in source.parents:
        node = source.parents[node]
        yield node


def scope(source: Source, node: ast.AST) -> Scope:
    """The innermost function (or the module) whose code runs a node."""
    return next(a for a in ancestors(source, node) if isinstance(a, Scope))


def parenthesized(source: Source, node: ast.expr) -> tuple[int, int]:
    """A node's extent with the parentheses around it alone: `(x + y)` of `a / (x + y)`."""
    start, end = source.extent(node)
    while True:
        before = len(source.text[:start].rstrip()) - 1
        after = end + len(source.text[end:]) - len(source.text[end:].lstrip())
        if (
            before < 0
            or source.text[before : before + 1] != "("
            or source.text[after : after + 1] != ")"
        ):
            return start, end
        # The parentheses of a call belong to the call, not to its only argument.
        if before > 0 and (source.text[before - 1].isalnum() or source.text[before - 1] in "_)]"):
            return start, end
        start, end = before, after + 1
