"""The cycle of backward, step and clearing: what belongs into it, moved to where it belongs."""

import ast
from collections.abc import Iterator, Sequence

from gradscope.facts import Edit, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit, Ways
from gradscope.repair.write.reading import factor
from gradscope.repair.write.splice import (
    after,
    before,
    commented,
    keyword,
    moved_before,
    whole_lines,
)
from gradscope.repair.write.statements import block_of, dropped, enclosing, node_at
from gradscope.repair.write.training import rate_of, target_of
from gradscope.repair.write.uses import Uses, calls_around
from gradscope.rules.wording import proposals
from gradscope.source import Source, definition
from gradscope.source.arguments import argument, called
from gradscope.source.spans import alike, ancestors
from gradscope.source.tree import parts

_LENGTHS = ("total_iters", "T_max", "total_steps")  # arguments of torch's schedulers
_FACTORS = "let the schedule's function give factors, without the rate itself"
_NARROW = ("torch.bfloat16", "torch.float16", "torch.half")
_CASTS = ("bfloat16", "half")


def stepped(culprit: Culprit, request: ask.StepAfterBackward) -> Ways:
    """The end of an epoch beside the condition of a step that never came; else `optimizer.step()`
    below a backward, by the name that the optimizer was given, or by that under which its gradients
    are cleared."""
    source, usage = culprit.source, request.usage
    if culprit.node is None:
        return
    for one in block_of(source, source.nodes.statement(culprit.node)):
        if isinstance(one, ast.If) and steps(source, one):
            yield Candidate(proposals.AT_THE_END, _ended(source, one))
    made, clears = culprit.at(usage.made), culprit.at(usage.clears_at)
    names = [target_of(culprit, made), _receiver(source, clears)]
    place = source.nodes.statement(culprit.node)
    loops = loops_around(source, source.nodes.statement(clears)) if clears is not None else []
    around = loops_around(source, place)
    apart = [one for one in loops if isinstance(one, ast.For) and one not in around]
    several = [source.of(one.target) for one in apart]  # optimizers that one name stands for
    for name in dict.fromkeys(filter(None, names)):
        if name not in several:
            yield after(source, place, f"{name}.step()")


def cleared_late(culprit: Culprit, request: ask.ClearAfterStep) -> Ways:
    """The statement that clears the gradients, below the one that steps."""
    source, step = culprit.source, culprit.at(request.usage.steps_at)
    if culprit.node is None or step is None:
        return
    clear, place = source.nodes.statement(culprit.node), source.nodes.statement(step)
    above = source.parents[clear]
    if isinstance(above, ast.If) and above.body == [clear] and not above.orelse:
        yield moved(source, above, place, source.of(clear))
    else:
        yield moved(source, clear, place)


def differentiated(culprit: Culprit, request: ask.DifferentiateAside) -> Ways:
    """`torch.autograd.grad(loss, x)[0]` for `loss.backward()` and a later `x.grad`, and nothing
    that has to be cleared."""
    source, call = culprit.source, culprit.at(request.place)
    if culprit.node is None or not isinstance(call, ast.Call) or call.args or call.keywords:
        return
    clear, backward = source.nodes.statement(culprit.node), source.nodes.statement(call)
    block = block_of(source, backward)
    if clear not in block or not isinstance(call.func, ast.Attribute):
        return
    below = block[block.index(backward) + 1 :]
    reads = [one for line in below for one in parts(line, ast.Attribute) if one.attr == "grad"]
    if len(reads) == 1 and clear in below and isinstance(backward, ast.Expr):
        root, leaf = source.of(call.func.value), source.of(reads[0].value)
        grad = culprit.torch(f"torch.autograd.grad({root}, {leaf})[0]")
        yield dropped(source, backward), source.replaced(reads[0], grad), dropped(source, clear)


def stepped_late(culprit: Culprit, request: ask.StepWhereCleared) -> Ways:
    """The step right before the statement that clears the gradients; where that stands around the
    loop, or the function, of the step, it is moved to where that begins."""
    source, clear = culprit.source, culprit.at(request.usage.clears_at)
    if culprit.node is None or clear is None:
        return
    step, place = source.nodes.statement(culprit.node), source.nodes.statement(clear)
    turn: ast.AST = next(iter(loops_around(source, step)), source.nodes.function(step))
    if turn in ancestors(source, place):
        if step is not place:
            yield moved_before(source, step, place)
    elif isinstance(turn, ast.For | ast.While | ast.FunctionDef) and _receiver(source, clear):
        edits = before(source, turn.body[0], f"{_receiver(source, culprit.node)}.zero_grad()")
        if len(block_of(source, place)) > 1 and whole_lines(source, place):
            edits = (*edits, dropped(source, place))
        yield Candidate("clear the gradients before each step", edits)


def unscaled_late(culprit: Culprit, request: ask.UnscaleBeforeStep) -> Ways:
    """The statement that unscales, with what follows it, into the branch below that steps."""
    source = culprit.source
    if culprit.node is None:
        return
    first = source.nodes.statement(culprit.node)
    block = block_of(source, first)
    below = block[block.index(first) :]
    for at, one in enumerate(below):
        steps = (call for call in parts(one, ast.Call) if called(call) == "step" and call.args)
        if isinstance(one, ast.If) and any(steps):
            lines = [whole_lines(source, line) for line in below[:at]]
            texts = [commented(source, line) for line in below[:at]]
            put = before(source, one.body[0], *texts)
            if put and None not in lines:
                yield (*put, *(source.edit(*line, "") for line in lines if line is not None))
            return
        if not isinstance(one, ast.Expr):
            return  # what it gives may be used below


def ended(culprit: Culprit, request: ask.StepAtTheEnd) -> Ways:
    """`if (i + 1) % 4 == 0 or i + 1 == len(loader):`, in a loop that counts its turns."""
    around = ancestors(culprit.source, culprit.node) if culprit.node is not None else iter(())
    branch = next((one for one in around if isinstance(one, ast.If)), None)
    if branch is not None:
        yield _ended(culprit.source, branch)


def _ended(source: Source, branch: ast.If) -> tuple[Edit, ...]:
    test, around = branch.test, ancestors(source, branch)
    loop = next((one for one in around if isinstance(one, ast.For)), None)
    last = _last_turn(source, loop) if loop is not None else None
    if last is None or not any(parts(test, ast.Mod)):
        return ()
    old = source.of(test)
    text = f"({old}) or {last}" if isinstance(test, ast.BoolOp) else f"{old} or {last}"
    return (source.replaced(test, text),)


def steps(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement steps, or calls a function of the file that does."""
    calls = [*parts(statement, ast.Call)]
    called_here = (Uses(source).callee(call) for call in calls)
    calls += [call for one in called_here if one is not None for call in parts(one, ast.Call)]
    return any(called(call) == "step" for call in calls)


def moved_on(culprit: Culprit, request: ask.MoveOnWithSteps) -> Ways:
    """The statement that moves a schedule on, with the condition that is for it alone, below the
    one of the same function that steps, or calls what does."""
    source, step = culprit.source, culprit.at(request.usage.steps_at)
    move = source.nodes.statement(culprit.node) if culprit.node is not None else None
    if not isinstance(move, ast.Expr) or step is None:
        return
    places = [source.nodes.statement(one) for one in (step, *calls_around(source, step))]
    whole: ast.stmt = move
    while isinstance(above := source.parents[whole], ast.If) and above.body == [whole]:
        if above.orelse or any(above in ancestors(source, one) for one in places):
            break
        whole = above
    function = source.nodes.function(move)
    yield from (
        moved(source, whole, one)
        for one in places
        if source.nodes.function(one) is function and one is not move
    )


def slowed(culprit: Culprit, request: ask.SlowSchedule) -> Ways:
    """The length that the schedule was given, where it counts batches; else the schedule moved on
    once an epoch: below the inner one of two loops; else its length, as long as the run was."""
    source, usage = culprit.source, request.usage
    move = source.nodes.statement(culprit.node) if culprit.node is not None else None
    loops = loops_around(source, move)
    yield from _of_all_batches(culprit, loops)
    if move is not None and loops and _is_repeated(source, loops):
        title = "move the schedule on once an epoch, and not at every batch"
        yield Candidate(title, moved(source, move, loops[0]))
    made = culprit.at(usage.schedule.made if usage.schedule is not None else None)
    for given in made.keywords if isinstance(made, ast.Call) else ():
        if given.arg in _LENGTHS and isinstance(given.value, ast.Constant):
            title = f"let the schedule last for the {usage.updates:,} steps"
            yield Candidate(title, (source.replaced(given.value, str(usage.updates)),))


def _of_all_batches(culprit: Culprit, loops: Sequence[ast.stmt]) -> Iterator[Candidate]:
    """`len(loader) * epochs` for what a schedule is given that has `len(loader)` in it alone."""
    source, made = culprit.source, definition(culprit.source, _receiver_of(culprit.node))
    match loops:
        case [
            ast.For(iter=batches),
            ast.For(iter=ast.Call(func=ast.Name("range"), args=[epochs])),
            *_,
        ]:
            while isinstance(batches, ast.Call) and batches.args:  # enumerate, tqdm
                batches = batches.args[0]
            length = f"len({source.of(batches)})"
            turns = f"{length} * {factor(source.of(epochs))}"
        case _:
            return
    if not isinstance(made, ast.Call):
        return
    for given in (*made.args, *(one.value for one in made.keywords)):
        whole = definition(source, given) or given
        if length in source.of(whole) and source.of(whole) != turns:
            yield culprit.written(f"let the schedule last for `{turns}` steps", whole, turns)


def awake(culprit: Culprit, request: ask.FactorAboveZero) -> Ways:
    """`step / warmup` for `step // warmup`, which is 0 below 1; `(epoch + 1) / warmup` for what is
    0 in the first epoch."""
    source, function = culprit.source, _function_at(culprit, request.given_by)
    if function is None:
        return
    counts = [one.arg for one in function.args.args]
    for quotient in parts(function, ast.BinOp):
        if source.of(quotient.left) not in counts:
            continue
        if isinstance(quotient.op, ast.FloorDiv):
            start, end = source.extent(quotient.left)[1], source.extent(quotient.right)[0]
            text = source.text[start:end].replace("//", "/")
            yield Candidate(proposals.NOT_FLOORED, (source.edit(start, end, text),))
        elif isinstance(quotient.op, ast.Div):
            edit = source.replaced(quotient.left, f"({source.of(quotient.left)} + 1)")
            yield Candidate(proposals.COUNTED_FROM_ONE, (edit,))


def _function_at(culprit: Culprit, place: Location | None) -> ast.FunctionDef | ast.Lambda | None:
    """The function that gives the factors of a schedule, by a place in it."""
    given = node_at(culprit.source, place)
    function = culprit.source.nodes.function(given) if given is not None else None
    return function if isinstance(function, ast.FunctionDef | ast.Lambda) else None


def rate_of_one(culprit: Culprit, request: ask.RateOfOne) -> Ways:
    """The rate left out of what the schedule's function gives, where that multiplies by the very
    words that the optimizer is given; else `lr=1.0`, where that is made."""
    made, schedule = culprit.at(request.usage.made), request.usage.schedule
    rate = rate_of(made) if isinstance(made, ast.Call) else None
    if rate is None:
        return
    function = _function_at(culprit, schedule.given_by if schedule is not None else None)
    for node in parts(function, ast.BinOp):
        sides = ((node.left, node.right), (node.right, node.left))
        other = next((other for one, other in sides if alike(one, rate)), None)
        if isinstance(node.op, ast.Mult) and other is not None:
            yield culprit.written(_FACTORS, node, factor(culprit.text(other)))
        elif isinstance(node.op, ast.Div) and other is node.right:
            yield culprit.written(_FACTORS, node.left, "1")
    yield [culprit.replace(rate, "1.0")]


def turned(culprit: Culprit, request: ask.WaitForLess | ask.WaitForMore) -> Ways:
    schedule = request.usage.schedule
    made = culprit.at(schedule.made if schedule is not None else None)
    mode = '"max"' if isinstance(request, ask.WaitForMore) else '"min"'
    if isinstance(made, ast.Call) and len(made.args) > 1:
        yield (culprit.replace(made.args[1], mode),)
    elif isinstance(made, ast.Call):
        yield (keyword(culprit.source, made, "mode", mode),)


def kept_scaler(culprit: Culprit, request: ask.KeepScaler) -> Ways:
    """The scaler made before the loop, and `update()` without a scale."""
    source = culprit.source
    name = _receiver(source, culprit.node)
    step = source.nodes.statement(culprit.node) if culprit.node is not None else None
    loops = loops_around(source, step)
    for made in source.nodes.every(ast.Assign) if loops else ():
        if source.of(made.targets[0]) == name and loops[0] in ancestors(source, made):
            edits = moved_before(source, made, loops[-1])
            yield Candidate("make the scaler once, before the loop", edits)
    for call in source.nodes.every(ast.Call):
        if called(call) == "update" and _receiver(source, call) == name and call.args:
            start, end = source.extent(call.args[0])[0], source.extent(call.args[-1])[1]
            yield Candidate("let `update()` find the scale", (source.edit(start, end, ""),))


def widened(culprit: Culprit, request: ask.WiderWeights) -> Ways:
    """float32 wherever the file asks for half precision, but for autocast."""
    source = culprit.source
    edits = [
        source.replaced(node, culprit.torch("torch.float32"))
        for node in source.nodes.every(ast.Attribute)
        if culprit.names.dotted(node) in _NARROW and not _is_of_autocast(culprit, node)
    ]
    for call in source.nodes.every(ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in _CASTS and not call.args:
            edits.append(source.renamed(function, "float"))
    yield Candidate("hold the parameters in float32", tuple(edits))


def _is_of_autocast(culprit: Culprit, node: ast.expr) -> bool:
    around = ancestors(culprit.source, node)
    calls = (culprit.dotted(one) for one in around if isinstance(one, ast.Call))
    return any(one.startswith("torch.") and one.endswith(".autocast") for one in calls)


def _receiver(source: Source, call: ast.AST | None) -> str | None:
    receiver = _receiver_of(call)
    return source.of(receiver) if receiver is not None else None


def _receiver_of(call: ast.AST | None) -> ast.expr | None:
    function = call.func if isinstance(call, ast.Call) else None
    return function.value if isinstance(function, ast.Attribute) else None


def moved(
    source: Source, what: ast.stmt, place: ast.stmt, text: str | None = None
) -> tuple[Edit, ...]:
    """A statement, or another `text` for it, below another one, or below the loop that it ends.
    Nothing where it shares its lines, or has its block to itself."""
    lines, text = whole_lines(source, what), text or commented(source, what)
    old, new = (f"{source.newline}{source.indent(one.lineno)}" for one in (what, place))
    text = text.replace(old, new)
    if lines is None or len(block_of(source, what)) < 2:
        return ()
    if what.end_lineno == place.end_lineno and what is not place:
        line = f"{source.indent(place.lineno)}{text}{source.newline}"
        return (source.edit(*lines, line),)
    edits = after(source, place, text)
    return (source.edit(*lines, ""), *edits) if edits and what is not place else ()


def loops_around(source: Source, what: ast.stmt | None) -> list[ast.For | ast.While]:
    """Those around a statement in its function, the innermost first."""
    return [one for one in enclosing(source, what) if isinstance(one, ast.For | ast.While)]


def _is_repeated(source: Source, loops: Sequence[ast.stmt]) -> bool:
    """Whether the first of these loops runs again and again: in the second one, or in a loop around
    each call of its function."""
    if len(loops) > 1:
        return True
    calls = [source.nodes.statement(one) for one in calls_around(source, loops[0])]
    return bool(calls) and all(loops_around(source, one) for one in calls)


def _last_turn(source: Source, loop: ast.For) -> str | None:
    """`i + 1 == len(loader)`: whether a turn of the loop is its last one."""
    match loop:
        case ast.For(ast.Name(index), ast.Call(ast.Name("range"), [turns])):
            return f"{index} + 1 == {source.of(turns)}"
        case ast.For(ast.Tuple([at, *_]), ast.Call(ast.Name("enumerate"), [items, *_]) as call):
            start = argument(call, "start", 1) or ast.Constant(0)
            index, total = source.of(at), f"len({source.of(items)})"
            by_start = {0: f"{index} + 1 == {total}", 1: f"{index} == {total}"}
            return by_start.get(getattr(start, "value", -1))
    return None
