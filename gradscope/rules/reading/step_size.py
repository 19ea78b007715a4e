"""Where a program says how long its training steps are, and the edit that changes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradscope import source
from gradscope.errors import GradscopeError
from gradscope.facts import Clearing, Edit, Location, Summed, Update
from gradscope.source import Source, definition
from gradscope.source.operands import called


def rate_of(update: Update) -> float | None:
    """The learning rate: the optimizer's, or the number that multiplies the gradient in an update
    by hand (`w -= 0.1 * w.grad`, `w.add_(w.grad, alpha=-lr)`); None where that is not written."""
    if update.lr is not None:
        return update.lr
    found = _by_hand(update.location)
    return float(found[1].value) if found is not None else None  # type: ignore[arg-type]


def with_rate(update: Update, lr: float) -> tuple[Edit, ...]:
    """The edit that makes `lr` the learning rate, if it is written as a number."""
    found = _of_optimizer(update) if update.optimizer else _by_hand(update.location)
    if found is None:
        return ()
    text, number = found
    return (text.edit(*text.extent(number), f"{lr:g}"),)


def with_setting(update: Update, name: str, old: float, new: float) -> tuple[Edit, ...]:
    """The edit of a keyword where the optimizer is made, if it is given as a number there."""
    text = _read(update.location)
    found = [
        keyword.value
        for call in _optimizers(text, update)
        for keyword in call.keywords
        if keyword.arg == name and _is_number(keyword.value, old)
    ]
    if text is None or len(found) != 1:
        return ()
    return (text.edit(*text.extent(found[0]), f"{new:g}"),)


def with_factor(update: Update, bound: str) -> tuple[Edit, ...]:
    """The edit that bounds what a `LambdaLR` multiplies the learning rate by: `min(1.0, {})`."""
    text = _read(update.location)
    if text is None:
        return ()
    bodies = [
        part.body
        for call in text.nodes.every(ast.Call)
        if called(call) == "LambdaLR"
        for part in (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(part, ast.Lambda)
    ]
    if len(bodies) != 1:
        return ()
    start, end = text.extent(bodies[0])
    return (text.edit(start, end, bound.format(text.of(bodies[0]))),)


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


def with_clearing(clearing: Clearing) -> tuple[Edit, ...]:
    """The edit that clears the gradients on lines of their own, beside a call that has its line to
    itself."""
    text = _read(clearing.location)
    call = source.expression(text, clearing.location) if text is not None else None
    if text is None or call is None:
        return ()
    place = text.nodes.statement(call)
    (start, end), indent = text.extent(place), text.indent(place.lineno)
    past = text.offset(place.end_lineno or place.lineno, 0)
    past += len(text.line(place.end_lineno or place.lineno))
    rest = text.text[end:past].strip()
    if text.text[text.offset(place.lineno, 0) : start].strip() or (rest and rest[0] != "#"):
        return ()
    block = f"{text.newline}{indent}".join(clearing.lines)
    if clearing.after:
        return (text.edit(past, past, f"{text.newline}{indent}{block}"),)
    return (text.edit(start, start, f"{block}{text.newline}{indent}"),)


def with_step_first(update: Update) -> tuple[Edit, ...]:
    """The edits that put the update before the `zero_grad()` which stands between it and backward
    in the same block."""
    text = _read(update.location)
    if text is None or update.location is None:
        return ()
    line = update.location.line
    for block in _blocks(text.tree):
        steps = [at for at, one in enumerate(block) if one.lineno <= line <= (one.end_lineno or 0)]
        clears = [at for at, one in enumerate(block) if _calls(text, one, "zero_grad")]
        if steps and (between := [at for at in clears if at < steps[0]]):
            clear, step = block[between[-1]], block[steps[0]]
            backward = (_calls(text, one, "backward") for one in block[: between[-1]])
            if any(backward) and _calls(text, step, "step"):
                return (
                    text.edit(*text.extent(clear), text.of(step)),
                    text.edit(*text.extent(step), text.of(clear)),
                )
    return ()


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield body


def _calls(text: Source, statement: ast.stmt, method: str) -> bool:
    """Whether a statement is a call of a method and nothing else."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and text.of(call.func).endswith(f".{method}")


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


def with_mean(total: Summed) -> tuple[Edit, ...]:
    """The edit that makes `mean()` of the `sum()` at the end of an expression."""
    place, line = total.location, _line(total.location)
    if place is None or line is None or not line[place.col : place.end_col].endswith(".sum()"):
        return ()
    end = place.end_col - len("()")
    return (Edit(place.file, place.line, end - len("sum"), place.line, end, "mean"),)


def _line(place: Location | None) -> str | None:
    """The text of the line on which a place begins and ends."""
    if place is None or place.line != place.end_line:
        return None
    try:
        return source.lines(place.file)[place.line - 1]
    except (GradscopeError, IndexError):
        return None


def _of_optimizer(update: Update) -> tuple[Source, ast.Constant] | None:
    """The number where the optimizer is made."""
    text = _read(update.location)
    if text is None:
        return None
    found = [
        value
        for node in _optimizers(text, update)
        for value in (*(k.value for k in node.keywords if k.arg == "lr"), *node.args[1:2])
        if isinstance(value, ast.Constant) and value.value == update.lr
    ]
    return (text, found[0]) if len(found) == 1 else None


def _optimizers(text: Source | None, update: Update) -> Iterator[ast.Call]:
    """The calls that may have made the optimizer."""
    for node in text.nodes.every(ast.Call) if text is not None else ():
        if called(node) == update.optimizer:
            yield node


def _is_number(node: ast.expr, value: float) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _by_hand(place: Location | None) -> tuple[Source, ast.Constant] | None:
    """The outermost factor of an update that is a number, or a name for one."""
    text = _read(place)
    if text is None or place is None:
        return None
    around = [
        node
        for node in ast.walk(text.tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr)
        and node.lineno <= place.line <= (node.end_lineno or node.lineno)
    ]
    numbers = (_number(text, factor) for node in around for factor in _factors(node))
    number = next((one for one in numbers if one is not None), None)
    return (text, number) if number is not None else None


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


def _read(place: Location | None) -> Source | None:
    if place is None:
        return None
    try:
        return source.read(place.file)
    except GradscopeError:
        return None
