"""What autograd does not refuse: new tensors for written ones, graphs let go of or kept, updates
and computations in another order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import takewhile

from gradscope.facts import (
    AllowUnused,
    Call,
    ComputeAfterUpdate,
    ComputeAnew,
    CopyLeaf,
    CopyWhenSaved,
    DetachCarried,
    DetachUse,
    Edit,
    FindUnused,
    Fix,
    KeepGraph,
    Location,
    OutOfPlace,
    ReduceLoss,
    UpdateLater,
    WithoutGrad,
)
from gradscope.facts.requests import OfRefusals
from gradscope.repair.write.candidate import Candidate
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.cycles import loops_around, moved
from gradscope.repair.write.splice import after, before, commented, keyword, whole_lines
from gradscope.source import Source, expression, operands
from gradscope.source.arguments import BINARY, called
from gradscope.source.spans import ancestors, statement_at
from gradscope.source.written import Holder, holder_of, is_write, written

# Ops that only write: without the underscore they are no ops, or others.
_FILLS = frozenset("copy_ fill_ zero_ uniform_ normal_ set_ resize_ random_ bernoulli_".split())
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "mm": "@"}
_PARALLEL = tuple(
    f"torch.nn.parallel.{module}DistributedDataParallel" for module in ("", "distributed.")
)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


def allowed(culprit: Culprit, fix: Fix, request: OfRefusals) -> Iterator[Candidate]:
    """The ways to write one of them."""
    for edits in _ways(culprit, request):
        if edits:
            yield Candidate(fix.kind, fix.title, tuple(edits))


def _ways(culprit: Culprit, request: OfRefusals) -> Iterator[Iterable[Edit]]:
    match request:
        case OutOfPlace(write):
            yield from _out_of_place(culprit, write.location, write.module)
        case CopyWhenSaved():
            yield from _copied(culprit, request)
        case DetachCarried():
            yield _let_go(culprit, request)
        case DetachUse(call, name):
            yield from _detached(culprit, call, name)
        case ComputeAnew():
            yield _each_turn(culprit, request)
        case KeepGraph(backward):
            yield _with_keyword(culprit, backward, "retain_graph")
        case UpdateLater():
            yield _later(culprit, request)
        case ComputeAfterUpdate():
            yield _after_update(culprit, request)
        case WithoutGrad():
            yield _without_grad(culprit)
        case CopyLeaf(name):
            yield _before(culprit, culprit.finding.location, f"{name} = {name}.clone()")
        case ReduceLoss():
            yield from _reduced(culprit)
        case FindUnused():
            yield from _finding_unused(culprit)
        case AllowUnused():
            yield _with_keyword(culprit, culprit.finding.location, "allow_unused")


# One tensor


def _out_of_place(
    culprit: Culprit, place: Location | None, module: str
) -> Iterator[Iterable[Edit]]:
    """`x = x + y` for `x += y`, `x = x.relu()` for `x.relu_()`, `inplace=False`; where a part of a
    tensor is written, a copy of it before."""
    source, node = culprit.source, _node(culprit.source, place)
    if module:
        yield list(_not_in_place(source, module))
    if isinstance(node, ast.Call):
        yield list(_switched_off(source, node))
        yield list(_renamed(source, node))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, Holder):
        sign = _SIGNS.get(BINARY.get(type(node.op), ""))
        if sign is not None:
            target, value = source.of(node.target), source.of(node.value)
            value = value if isinstance(node.value, _ATOMS) else f"({value})"
            yield [source.edit(*source.extent(node), f"{target} = {target} {sign} {value}")]
    holder = holder_of(written(source, node))
    if holder is not None:
        name = source.of(holder)
        yield _before(culprit, place, f"{name} = {name}.clone()")


_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


def _not_in_place(source: Source, module: str) -> Iterator[Edit]:
    """Wherever the file makes a layer of that class: in place it computes the same."""
    for call in source.nodes.every(ast.Call):
        if called(call) == module:
            yield from _switched_off(source, call)
            for given in call.args:
                if isinstance(given, ast.Constant) and given.value is True:
                    yield source.edit(*source.extent(given), "False")


def _switched_off(source: Source, call: ast.Call) -> Iterator[Edit]:
    for one in call.keywords:
        if one.arg == "inplace" and isinstance(one.value, ast.Constant) and one.value.value is True:
            yield source.edit(*source.extent(one.value), "False")


def _renamed(source: Source, call: ast.Call) -> Iterator[Edit]:
    """Without the underscore: `x = x.relu()` where the result was not used, else `x.relu()`."""
    function, name = call.func, called(call)
    if not name.endswith("_") or name.endswith("__") or name in _FILLS:
        return
    if not isinstance(function, ast.Attribute):
        return
    statement = source.nodes.statement(call)
    target = written(source, call)
    if isinstance(statement, ast.Expr) and statement.value is call:
        if not isinstance(target, Holder):
            return
        start = source.extent(call)[0]
        yield source.edit(start, start, f"{source.of(target)} = ")
    end = source.extent(function)[1]
    yield source.edit(end - 1, end, "")


def _copied(culprit: Culprit, request: CopyWhenSaved) -> Iterator[Iterable[Edit]]:
    """`.clone()` behind what the op saves: its result, or an operand."""
    source, node = culprit.source, _node(culprit.source, request.call.location)
    if not isinstance(node, ast.expr):
        return
    if request.role == "result":
        yield [source.edit(*source.extent(node), f"{culprit.text(node)}.clone()")]
        return
    given = operands(source, node, request.call.op).get(request.role)
    named = [one for one in ast.walk(node) if isinstance(one, Holder)]
    for one in (given, *(part for part in named if source.of(part) == request.name)):
        if isinstance(one, ast.expr) and isinstance(getattr(one, "ctx", ast.Load()), ast.Load):
            yield [source.edit(*source.extent(one), f"{culprit.text(one)}.clone()")]


def _without_grad(culprit: Culprit) -> Iterable[Edit]:
    """The statement, and those below it that write as well, in `with torch.no_grad():`."""
    source, guard = culprit.source, culprit.torch("torch.no_grad()")
    statement = statement_at(source, culprit.finding.location)
    if statement is None or guard is None or whole_lines(source, statement) is None:
        return ()
    block = _block(source, statement)
    rest = takewhile(partial(is_write, source), block[block.index(statement) + 1 :])
    start, end = source.extent(statement)[0], source.extent([statement, *rest][-1])[1]
    indent = source.indent(statement.lineno)
    text = source.text[start:end].replace(source.newline, f"{source.newline}    ")
    return [source.edit(start, end, f"with {guard}:{source.newline}{indent}    {text}")]


# Graphs


def _let_go(culprit: Culprit, request: DetachCarried) -> Iterable[Edit]:
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


def _detached(culprit: Culprit, call: Call, name: str) -> Iterator[Iterable[Edit]]:
    """`name.detach()` in the call, in the function that calls backward first."""
    source, place = culprit.source, culprit.finding.location
    frames = [one for one in call.frames if one.file == source.file]
    for frame in sorted(frames, key=lambda one: place is None or one.function != place.function):
        node = _node(source, frame)
        for one in ast.walk(node) if node is not None else ():
            if isinstance(one, Holder) and source.of(one) == name:
                yield [source.edit(*source.extent(one), f"{name}.detach()")]
                return


def _each_turn(culprit: Culprit, request: ComputeAnew) -> Iterable[Edit]:
    """What stands before the loop, at its begin."""
    source, backward = culprit.source, statement_at(culprit.source, request.backward)
    for loop in loops_around(source, backward) if backward is not None else ():
        block = _block(source, loop)
        lines = _lines(request.calls, request.backward)
        found = [one for one in block[: block.index(loop)] if _is_on(one, lines)]
        if found and all(isinstance(one, _SIMPLE) and whole_lines(source, one) for one in found):
            first = loop.body[0]
            edit = before(source, first, *(commented(source, one) for one in found))
            return [*(_dropped(source, one) for one in found), *filter(None, [edit])]
    return ()


def _later(culprit: Culprit, request: UpdateLater) -> Iterable[Edit]:
    """The update below the second backward, in one block."""
    source = culprit.source
    update, backward = _beside(source, request.update.location, request.backward)
    if update is None or backward is None:
        return ()
    return moved(source, update, backward)


def _after_update(culprit: Culprit, request: ComputeAfterUpdate) -> Iterable[Edit]:
    """The lines of the calls below the update: moved where nobody reads them before, else again."""
    source = culprit.source
    update, backward = _beside(source, request.update.location, request.backward)
    if update is None or backward is None:
        return ()
    block = _block(source, update)
    lines = _lines(request.calls, request.backward)
    found = [one for one in block[: block.index(update)] if _is_on(one, lines)]
    assigned = [one for one in found if isinstance(one, ast.Assign)]
    if not found or len(assigned) < len(found):
        return ()
    edit = after(source, update, *(commented(source, one) for one in found))
    if edit is None:
        return ()
    between = [one for one in block[: block.index(update) + 1] if one not in found]
    return [edit, *(_dropped(source, one) for one in assigned if not _is_read(one, between))]


def _is_read(what: ast.Assign, others: Iterable[ast.stmt]) -> bool:
    """Whether one of the others, below it, has a name that it assigns."""
    targets = (part for target in what.targets for part in ast.walk(target))
    names = {one.id for one in targets if isinstance(one, ast.Name)}
    return any(
        isinstance(part, ast.Name) and part.id in names
        for other in others
        if other.lineno > what.lineno
        for part in ast.walk(other)
    )


def _with_keyword(culprit: Culprit, place: Location | None, name: str) -> Iterable[Edit]:
    node = _node(culprit.source, place)
    if isinstance(node, ast.Expr):
        node = node.value
    return [keyword(culprit.source, node, name, "True")] if isinstance(node, ast.Call) else ()


def _finding_unused(culprit: Culprit) -> Iterator[Iterable[Edit]]:
    """`find_unused_parameters=True`, where the file makes the DistributedDataParallel."""
    for call in culprit.source.nodes.every(ast.Call):
        if culprit.names.dotted(call.func) in _PARALLEL:
            yield [keyword(culprit.source, call, "find_unused_parameters", "True")]


def _reduced(culprit: Culprit) -> Iterator[Iterable[Edit]]:
    """`loss.mean().backward()`."""
    source, call = culprit.source, culprit.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    what = call.func.value if called(call) == "backward" else next(iter(call.args), None)
    if what is not None:
        for reduction in ("mean", "sum"):
            yield [source.edit(*source.extent(what), f"{culprit.text(what)}.{reduction}()")]


# Places


def _node(source: Source, place: Location | None) -> ast.AST | None:
    """The expression that a place covers, else the statement on its lines."""
    if place is None or place.file != source.file:
        return None
    return expression(source, place) or statement_at(source, place)


def _beside(
    source: Source, one: Location | None, other: Location
) -> tuple[ast.stmt | None, ast.stmt | None]:
    """The statements around two places that stand in one block, the first one first."""
    first, second = statement_at(source, one), statement_at(source, other)
    if first is None or second is None:
        return None, None
    around = [second, *(node for node in ancestors(source, second) if isinstance(node, ast.stmt))]
    for outer in (first, *ancestors(source, first)):
        if not isinstance(outer, ast.stmt):
            continue
        block = _block(source, outer)
        match = next((node for node in around if node in block), None)
        if match is not None and block.index(outer) < block.index(match):
            return outer, match
    return None, None


def _block(source: Source, statement: ast.stmt) -> list[ast.stmt]:
    parent = source.parents[statement]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return [statement]


def _lines(calls: Iterable[Call], near: Location) -> set[int]:
    """The lines in the function around a place from which the calls were made."""
    return {
        frame.line
        for call in calls
        for frame in call.frames
        if (frame.file, frame.function) == (near.file, near.function)
    }


def _is_on(statement: ast.stmt, lines: set[int]) -> bool:
    return any(statement.lineno <= line <= (statement.end_lineno or 0) for line in lines)


def _before(culprit: Culprit, place: Location | None, line: str) -> Iterable[Edit]:
    statement = statement_at(culprit.source, place)
    edit = before(culprit.source, statement, line) if statement is not None else None
    return [edit] if edit is not None else ()


def _dropped(source: Source, statement: ast.stmt) -> Edit:
    start, past = whole_lines(source, statement) or (0, 0)
    return source.edit(start, past, "")
