"""Where the user's source defines a layer, and what it says around a line."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType

import torch

from gradscope.facts import Location
from gradscope.record.sites import USER, kind_of, shown_path
from gradscope.source import Source

# No op is run when grad mode changes: where that is written has to be read.
_GUARDS = frozenset(
    f"torch.{module}{guard}"
    for module in ("", "autograd.", "autograd.grad_mode.")
    for guard in ("no_grad", "inference_mode", "set_grad_enabled")
)


def definition(
    path: Sequence[tuple[str, torch.nn.Module]],
) -> tuple[Location | None, Location | None]:
    """Where the layer was assigned in the `__init__` of the module that holds it, and that
    module's `forward`. The layer's own attribute may be a list's index: its holder's counts."""
    for depth in range(len(path) - 1, 0, -1):
        attribute = path[depth][0]
        parent = path[depth - 1][1]
        for kind in type(parent).__mro__:
            code = getattr(vars(kind).get("__init__"), "__code__", None)
            if code is None or kind_of(code) != USER:
                continue
            found = _assignment(code, attribute)
            if found is not None:
                return found, _definition_line(getattr(type(parent).forward, "__code__", None))
    return None, None


@lru_cache(maxsize=64)
def _source(file: str) -> Source | None:
    source = Source(file, "".join(linecache.getlines(file)))
    try:
        assert source.tree
    except (SyntaxError, ValueError, RecursionError):
        return None
    return source


def _function(code: CodeType) -> ast.FunctionDef | None:
    source = _source(code.co_filename)
    nodes = source.nodes.every(ast.FunctionDef) if source else ()
    return next(
        (
            node
            for node in nodes
            if node.name == code.co_name
            and code.co_firstlineno in (node.lineno, *(one.lineno for one in node.decorator_list))
        ),
        None,
    )


def _assignment(code: CodeType, attribute: str) -> Location | None:
    function = _function(code)
    for node in ast.walk(function) if function else ():
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [one for target in targets for one in ast.walk(target)]
        if any(isinstance(one, ast.Attribute) and one.attr == attribute for one in names):
            return _span(code, node)
    return None


def _definition_line(code: CodeType | None) -> Location | None:
    if code is None or kind_of(code) != USER:
        return None
    function = _function(code)
    if function is None:
        return None
    end = function.col_offset + len(f"def {function.name}")
    file = shown_path(code.co_filename)
    return Location(
        file, function.lineno, function.col_offset, function.lineno, end, code.co_qualname
    )


def _span(code: CodeType, node: ast.stmt) -> Location:
    return Location(
        file=shown_path(code.co_filename),
        line=node.lineno,
        col=node.col_offset,
        end_line=node.end_lineno or node.lineno,
        end_col=node.end_col_offset or node.col_offset,
        function=code.co_qualname,
    )


def guarding_with(code: CodeType, line: int) -> Location | None:
    """The `with torch.no_grad()` (or the decorator) of a function's code that covers a line."""
    source = _source(code.co_filename)
    if source is None:
        return None
    names, found = source.names, None
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.With | ast.FunctionDef):
            continue
        if not node.lineno <= line <= (node.end_lineno or 0):
            continue
        items = (
            [item.context_expr for item in node.items]
            if isinstance(node, ast.With)
            else node.decorator_list
        )
        for item in items:
            called = item.func if isinstance(item, ast.Call) else item
            if names.dotted(called) in _GUARDS:
                found = Location(
                    shown_path(code.co_filename), item.lineno, item.col_offset,
                    item.end_lineno or item.lineno, item.end_col_offset or 0, code.co_qualname,
                )  # fmt: skip
    return found
