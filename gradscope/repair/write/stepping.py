"""Updates of the parameters: their length, what they add up, and when gradients are cleared."""

import ast

from gradscope.facts import Update
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.reading import negative
from gradscope.repair.write.splice import after, before
from gradscope.repair.write.statements import block_of, dropped, left_out
from gradscope.repair.write.training import rate_of, rates
from gradscope.repair.write.uses import given_to
from gradscope.source import definition, expression
from gradscope.source.arguments import argument, called, spelled
from gradscope.source.hand_updates import ascent, rate_by_hand, written
from gradscope.source.literals import setting
from gradscope.source.spans import statement_at
from gradscope.source.tree import covers, names_in, parts


def slower(culprit: Culprit, request: ask.LowerRate) -> Ways:
    """The rate that was asked for, where the one in use is set, or is given to the optimizer; else
    whichever power of ten below what the file says."""
    update, new = request.update, request.new
    place = update.location if update is not None and _is_here(culprit, update) else None
    if update is not None and new is not None and place is not None:
        by_hand = not update.optimizer
        number = rate_by_hand(culprit.source, place) if by_hand else _of_optimizer(culprit, update)
        if number is not None:
            edit = culprit.source.replaced(number, f"{new:g}")
            yield (edit,)
            return
    yield from rates(culprit)


def cleared(culprit: Culprit, request: ask.ClearGradients) -> Ways:
    """Lines of their own that clear the gradients, beside a call that has its line to itself."""
    source, clearing = culprit.source, request.clearing
    call = expression(source, clearing.location) if clearing is not None else None
    if clearing is not None and call is not None:
        beside = after if clearing.after else before
        yield beside(source, source.nodes.statement(call), *clearing.lines)


def step_first(culprit: Culprit, request: ask.StepBeforeClearing) -> Ways:
    """The update before the `zero_grad()` that stands above it in one block, with no backward
    between them."""
    source, step = culprit.source, statement_at(culprit.source, request.update.location)
    if step is None or not _calls(step, "step"):
        return
    block = block_of(source, step)
    above = block[: block.index(step)]
    clear = next((one for one in reversed(above) if _calls(one, "zero_grad")), None)
    between = above[above.index(clear) :] if clear is not None else []
    if clear is not None and not any(_calls(one, "backward") for one in between):
        yield (source.replaced(clear, source.of(step)), source.replaced(step, source.of(clear)))


def averaged(culprit: Culprit, request: ask.AverageLoss) -> Ways:
    """The mean of what is summed up: `x.mean()` for `x.sum()`, `reduction="mean"` for that of a
    loss, or of its layer."""
    call = culprit.at(request.total.location)
    if not isinstance(call, ast.Call):
        return
    found, layer = spelled(culprit.source, call), given_to(culprit.source, call.func)
    for reduction in (argument(one, "reduction") for one in (call, layer)):
        if isinstance(reduction, ast.Constant):
            text = culprit.source.of(reduction).replace("sum", "mean")
            yield (culprit.source.replaced(reduction, text),)
    if not isinstance(call.func, ast.Attribute):
        return
    if found.name == "sum" and not (found.positional[1:] or found.keywords):
        yield (culprit.replace(call.func, f"{culprit.source.of(call.func.value)}.mean"),)


def descending(culprit: Culprit, request: ask.Descend) -> Ways:
    """`w -= lr * w.grad` for `w += lr * w.grad`, `alpha=-lr` for `alpha=lr`."""
    source, update = culprit.source, request.update
    if update.location is None or not _is_here(culprit, update):
        return
    found = ascent(source, update.location, update.optimizer)
    if isinstance(found, ast.keyword):
        yield (source.replaced(found.value, f"-{source.of(found.value)}"),)
    elif found is not None:
        start, end = source.extent(found.target)[1], source.extent(found.value)[0]
        yield (source.edit(start, end, " -= "),)


def kept_real(culprit: Culprit, request: ask.BoundBase) -> Ways:
    """`max(0.0, 1 - t / last) ** power` for `(1 - t / last) ** power`."""
    if isinstance(culprit.node, ast.BinOp):
        base = culprit.source.of(culprit.node.left)
        yield (culprit.replace(culprit.node.left, f"max(0.0, {base})"),)


def turned(culprit: Culprit, request: ask.TurnSign) -> Ways:
    """`loss = nll` for `loss = -nll`, and the other way round, where backward is called on it."""
    source, call = culprit.source, culprit.at(request.backward)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    loss = call.func.value
    made = definition(source, loss) if isinstance(loss, ast.Name) else loss
    if isinstance(made, ast.UnaryOp) and isinstance(made.op, ast.USub):
        yield (source.replaced(made, source.of(made.operand)),)
    elif isinstance(made, ast.expr):
        yield (culprit.replace(made, negative(source.of(made))),)


def divided(culprit: Culprit, request: ask.DivideLoss) -> Ways:
    """`(loss / 4).backward()` for `loss.backward()`."""
    source, call = culprit.source, culprit.at(request.backward)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        loss = call.func.value
        yield (source.replaced(loss, f"({source.of(loss)} / {request.passes})"),)


def averaged_once(culprit: Culprit, request: ask.AverageOnce) -> Ways:
    """`p.grad /= ranks` left out, with the loop around it where nothing else is in that; `a` for a
    loss that is `a / ranks` where backward is called, or where its name is bound."""
    source, statement = culprit.source, statement_at(culprit.source, request.place)
    if statement is None:
        return
    if request.by_hand:
        yield (left_out(source, statement),)
        return
    names = names_in(statement)
    for one in parts(source.nodes.function(statement), ast.stmt):
        target = written(source, one) if isinstance(one, ast.Assign | ast.AugAssign) else None
        is_bound = isinstance(target, ast.Name) and target.id in names
        if isinstance(one, ast.AugAssign) and is_bound and isinstance(one.op, ast.Div):
            yield (dropped(source, one),)
        for part in parts(one if one is statement or is_bound else None, ast.BinOp):
            if isinstance(part.op, ast.Div):
                left = source.of(part.left)
                again = isinstance(one, ast.Assign) and target and left == source.of(target)
                yield (dropped(source, one) if again else culprit.replace(part, left),)


def state_anew(culprit: Culprit, request: ask.StartStateAnew) -> Ways:
    """No `optimizer.load_state_dict(state)`."""
    statement = statement_at(culprit.source, request.loaded)
    if isinstance(statement, ast.Expr):
        yield (left_out(culprit.source, statement),)


def decaying(culprit: Culprit, request: ask.DecayRate) -> Ways:
    """`gamma=0.1` for `gamma=10`; for `gamma=0` as well, as torch has it where none is given."""
    source, gamma = culprit.source, request.schedule.gamma
    given = argument(culprit.at(request.schedule.made), "gamma", -1)
    if given is not None and gamma is not None:
        number, factor = setting(source, given, gamma), 1 / gamma if gamma else 0.1
        yield (source.replaced(number, f"{factor:g}"),)


def _is_here(culprit: Culprit, update: Update) -> bool:
    return update.location is not None and update.location.file == culprit.source.file


def _of_optimizer(culprit: Culprit, update: Update) -> ast.expr | None:
    """The learning rate where the optimizer is made: a number, or what was seen to give it."""
    found = [
        rate
        for node in culprit.source.nodes.every(ast.Call)
        if called(node) == update.optimizer and (rate := rate_of(node)) is not None
        if getattr(rate, "value", None) == update.lr or _was_made(node, update)
    ]
    return setting(culprit.source, found[0], update.lr or 0.0) if len(found) == 1 else None


def _was_made(node: ast.Call, update: Update) -> bool:
    """Whether that call has made the optimizer, whose rate no schedule has changed."""
    is_first = update.base_lr in (None, update.lr)
    return is_first and update.made is not None and covers(node, update.made.line)


def _calls(statement: ast.stmt, method: str) -> bool:
    """Whether a statement is a call of a method and nothing else."""
    match statement:
        case ast.Expr(ast.Call(func=ast.Attribute(attr=name))):
            return name == method
    return False
