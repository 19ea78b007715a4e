"""Graphs that are let go of, kept, or made anew; updates and computations in another order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gradscope.facts import (
    Call,
    ComputeAfterUpdate,
    ComputeAnew,
    DetachCarried,
    Edit,
    Location,
    UpdateLater,
)
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.cycles import loops_around, moved
from gradscope.repair.write.places import beside, block_of, dropped, is_on, lines_of, node_at
from gradscope.repair.write.splice import after, before, commented, keyword, whole_lines
from gradscope.source.arguments import called
from gradscope.source.spans import statement_at
from gradscope.source.written import Holder

_PARALLEL = tuple(
    f"torch.nn.parallel.{module}DistributedDataParallel" for module in ("", "distributed.")
)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


def let_go(culprit: Culprit, request: DetachCarried) -> Iterable[Edit]:
    """`h = h.detach()` behind the backward."""
    name = request.carried.name
    text = f"{name} = {name}.detach()"
    if request.carried.parts == "tuple":
        text = f"{name} = tuple(one.detach() for one in {name})"
    elif request.carried.parts == "list":
        text = f"{name} = [one.detach() for one in {name}]"
    statement = statement_at(culprit.source, request.carried.backward)
    edit = after(culprit.source, statement, text) if statement is not None else None
    return [edit] if edit is not None else ()


def detached(culprit: Culprit, call: Call, name: str) -> Iterator[Iterable[Edit]]:
    """`name.detach()` in the call, in the function that calls backward first."""
    source, place = culprit.source, culprit.finding.location
    frames = [one for one in call.frames if one.file == source.file]
    for frame in sorted(frames, key=lambda one: place is None or one.function != place.function):
        node = node_at(source, frame)
        for one in ast.walk(node) if node is not None else ():
            if isinstance(one, Holder) and source.of(one) == name:
                yield [source.edit(*source.extent(one), f"{name}.detach()")]
                return


def each_turn(culprit: Culprit, request: ComputeAnew) -> Iterator[Iterable[Edit]]:
    """What stands before the loop, or before the closure that calls backward, at its begin; what a
    condition runs once, without that."""
    source, backward = culprit.source, statement_at(culprit.source, request.backward)
    if backward is None:
        return
    function = source.nodes.function(backward)
    turns: list[ast.For | ast.While | ast.FunctionDef] = [*loops_around(source, backward)]
    turns += [function] if isinstance(function, ast.FunctionDef) else []
    for turn in turns:
        block, within = block_of(source, turn), request.backward.function
        if turn is function:
            within = within.rpartition(".<locals>.")[0] or "<module>"
        lines = lines_of(request.calls, replace(request.backward, function=within))
        found = [one for one in block[: block.index(turn)] if is_on(one, lines)]
        if found and all(isinstance(one, _SIMPLE) and whole_lines(source, one) for one in found):
            edit = before(source, turn.body[0], *(commented(source, one) for one in found))
            yield [*(dropped(source, one) for one in found), *filter(None, [edit])]
            return
    yield _unconditional(culprit)


def _unconditional(culprit: Culprit) -> Iterable[Edit]:
    """The body of the `if` around the finding, at its depth."""
    source, statement = culprit.source, statement_at(culprit.source, culprit.finding.location)
    around = source.parents[statement] if statement is not None else None
    if not isinstance(around, ast.If) or around.orelse:
        return ()
    lines = whole_lines(source, around)
    if lines is None:
        return ()
    indent = source.indent(around.lineno)
    bodies = (commented(source, one) for one in around.body)
    text = "".join(f"{indent}{body}{source.newline}" for body in bodies)
    return [source.edit(*lines, text)]


def later(culprit: Culprit, request: UpdateLater) -> Iterable[Edit]:
    """The update below the second backward, in one block."""
    source = culprit.source
    update, backward = beside(source, request.update.location, request.backward)
    if update is None or backward is None:
        return ()
    return moved(source, update, backward)


def after_update(culprit: Culprit, request: ComputeAfterUpdate) -> Iterable[Edit]:
    """The lines of the calls below the update: moved where nobody reads them before, else again."""
    source = culprit.source
    update, backward = beside(source, request.update.location, request.backward)
    if update is None or backward is None:
        return ()
    block = block_of(source, update)
    lines = lines_of(request.calls, request.backward)
    found = [one for one in block[: block.index(update)] if is_on(one, lines)]
    assigned = [one for one in found if isinstance(one, ast.Assign)]
    if not found or len(assigned) < len(found):
        return ()
    edit = after(source, update, *(commented(source, one) for one in found))
    if edit is None:
        return ()
    between = [one for one in block[: block.index(update) + 1] if one not in found]
    return [edit, *(dropped(source, one) for one in assigned if not _is_needed(one, between))]


def _is_needed(what: ast.Assign, others: Iterable[ast.stmt]) -> bool:
    """Whether one of the others, below it, has a name that it assigns."""
    targets = (part for target in what.targets for part in ast.walk(target))
    names = {one.id for one in targets if isinstance(one, ast.Name)}
    return any(
        isinstance(part, ast.Name) and part.id in names
        for other in others
        if other.lineno > what.lineno
        for part in ast.walk(other)
    )


def with_keyword(culprit: Culprit, place: Location | None, name: str) -> Iterable[Edit]:
    node = node_at(culprit.source, place)
    if isinstance(node, ast.Expr):
        node = node.value
    return [keyword(culprit.source, node, name, "True")] if isinstance(node, ast.Call) else ()


def finding_unused(culprit: Culprit) -> Iterator[Iterable[Edit]]:
    """`find_unused_parameters=True`, where the file makes the DistributedDataParallel."""
    for call in culprit.source.nodes.every(ast.Call):
        if culprit.names.dotted(call.func) in _PARALLEL:
            yield [keyword(culprit.source, call, "find_unused_parameters", "True")]


def thawed(culprit: Culprit, modules: Iterable[str]) -> Iterable[Edit]:
    """`model.head.requires_grad_(True)` below the loop that freezes all."""
    source, statement = culprit.source, statement_at(culprit.source, culprit.finding.location)
    loops = loops_around(source, statement) if statement is not None else []
    place = loops[-1] if loops else statement
    lines = (f"{name}.requires_grad_(True)" for name in modules)
    edit = after(source, place, *lines) if place is not None else None
    return [edit] if edit is not None else ()


def asked_for(culprit: Culprit, name: str) -> Iterable[Edit]:
    """That tensor as the second argument of `torch.autograd.grad`."""
    source, call = culprit.source, culprit.node
    given = [*call.args[1:2]] if isinstance(call, ast.Call) else []
    given += [one.value for one in getattr(call, "keywords", ()) if one.arg == "inputs"]
    if len(given) != 1 or isinstance(given[0], ast.List | ast.Tuple):
        return ()
    return [source.edit(*source.extent(given[0]), name)]


def reduced(culprit: Culprit) -> Iterator[Iterable[Edit]]:
    """`loss.mean().backward()`."""
    source, call = culprit.source, culprit.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    what = call.func.value if called(call) == "backward" else next(iter(call.args), None)
    if what is not None:
        for reduction in ("mean", "sum"):
            yield [source.edit(*source.extent(what), f"{culprit.text(what)}.{reduction}()")]
