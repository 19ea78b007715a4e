"""What the source tells of an update: its rate, which way it goes, what its loss is divided by."""

from __future__ import annotations

import ast

from gradscope import source
from gradscope.errors import GradscopeError
from gradscope.facts import Edit, Location, Update
from gradscope.source import Source, definition
from gradscope.source.hand_updates import rate_by_hand


def rate_of(update: Update) -> float | None:
    """The learning rate: the optimizer's, or the number that multiplies the gradient in an update
    by hand (`w -= 0.1 * w.grad`, `w.add_(w.grad, alpha=-lr)`); None where that is not written."""
    if update.lr is not None:
        return update.lr
    text = _read(update.location)
    if text is None or update.location is None:
        return None
    found = rate_by_hand(text, update.location)
    return float(found.value) if found is not None else None  # type: ignore[arg-type]


def with_descent(update: Update) -> tuple[Edit, ...]:
    """The edit of an update that adds the gradient, by hand or in an optimizer of the program's
    own, so that it subtracts it; none where no such update is written."""
    text = _read(update.location)
    if text is None:
        return ()
    within = [node for node in ast.walk(text.tree) if _updates(node, update)]
    edits = (_subtracting(text, node) for around in within for node in ast.walk(around))
    found = [edit for edit in edits if edit is not None]
    return tuple(found) if len(found) == 1 else ()


def _updates(node: ast.AST, update: Update) -> bool:
    """Whether this is the optimizer's class, or the statement that updates by hand."""
    if update.optimizer:
        return isinstance(node, ast.ClassDef) and node.name == update.optimizer
    if not isinstance(node, ast.AugAssign | ast.Expr) or update.location is None:
        return False
    return node.lineno == update.location.line


def _subtracting(text: Source, node: ast.AST) -> Edit | None:
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        if "grad" in text.of(node.value) and not text.of(node.value).startswith("-"):
            start, end = text.extent(node.target)[1], text.extent(node.value)[0]
            return text.edit(start, end, " -= ")
    if isinstance(node, ast.Call) and text.of(node.func).endswith(".add_") and node.args:
        for keyword in node.keywords:
            given = text.of(keyword.value)
            if keyword.arg == "alpha" and "grad" in text.of(node.args[0]) and given[0] != "-":
                return text.edit(*text.extent(keyword.value), f"-{given}")
    return None


def with_division(backward: Location | None, passes: int) -> tuple[Edit, ...]:
    """The edit that divides a loss where its backward is called; none where it is a quotient."""
    text = _read(backward)
    call = source.expression(text, backward) if text is not None and backward is not None else None
    if text is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ()
    loss = call.func.value
    given = definition(text, loss) if isinstance(loss, ast.Name) else loss
    if given is None or any(isinstance(node, ast.Div) for node in ast.walk(given)):
        return ()
    return (text.edit(*text.extent(loss), f"({text.of(loss)} / {passes})"),)


def _read(place: Location | None) -> Source | None:
    if place is None:
        return None
    try:
        return source.read(place.file)
    except GradscopeError:
        return None
