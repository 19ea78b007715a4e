"""Gradients that a statement switches off for all that follows, switched off for a part alone."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from gradscope.facts import Edit, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.splice import past_of, whole_lines
from gradscope.repair.write.statements import block_of, left_out, within
from gradscope.rules.wording import proposals
from gradscope.source import Source
from gradscope.source.arguments import arguments_of, called
from gradscope.source.spans import ancestors, statement_at
from gradscope.source.tree import names_in, parts

_GUARDS = frozenset({"torch.no_grad", "torch.inference_mode"})
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def switched_off_within(culprit: Culprit, request: ask.SwitchOffWithin) -> Iterator[Candidate]:
    """`@torch.no_grad()` for the function that computes without gradients, and no statement that
    switches them off; where that function runs backward too, a `with torch.no_grad():` around what
    follows; else no such statement alone."""
    source, statement, call = culprit.source, culprit.statement, culprit.call
    if not isinstance(statement, ast.Expr) or call is None:
        return
    gone = left_out(source, statement)
    own = source.nodes.function(statement)
    if isinstance(own, ast.FunctionDef) and not _differentiates(culprit, own, request.backward):
        if _computes_below(own, statement) and not _decides(source, statement, own):
            yield from _decorated(culprit, own, gone)
        yield from _callers_decorated(culprit, request, own, gone)
    elif edits := _in_block(culprit, statement):
        yield Candidate(proposals.WITHIN_BLOCK, edits, alone=True)
    yield Candidate("leave gradients switched on", (gone,))


def _decorated(culprit: Culprit, function: ast.FunctionDef, gone: Edit) -> Iterator[Candidate]:
    source = culprit.source
    if not any(culprit.dotted(one) in _GUARDS for one in function.decorator_list):
        start, indent = source.offset(function.lineno, 0), source.indent(function.lineno)
        guard = f"{indent}@{culprit.torch('torch.no_grad()')}{source.newline}"
        title = proposals.WITHIN.format(name=function.name)
        yield Candidate(title, (source.edit(start, start, guard), gone))


def _callers_decorated(
    culprit: Culprit, request: ask.SwitchOffWithin, own: ast.FunctionDef, gone: Edit
) -> Iterator[Candidate]:
    """The next function outside of the one that has the switch, where all its calls of that switch
    gradients off."""
    for place in request.switch[1:]:
        source, _ = culprit.found(place)
        statement = statement_at(source, place)
        if statement is None:
            return
        function = source.nodes.function(statement)
        theirs = replace(culprit, source=source)
        if function is own:
            continue  # as a comprehension in it
        if not isinstance(function, ast.FunctionDef):
            return
        is_known = source.file == culprit.source.file or source.names.spell("torch.x")
        calls = [one for one in parts(function, ast.Call) if called(one) == own.name]
        is_off = bool(calls) and all(_is_off(culprit, source, own, one, function) for one in calls)
        if is_known and is_off and not _differentiates(theirs, function, request.backward):
            yield from _decorated(theirs, function, gone)
        return


def _is_off(
    culprit: Culprit, source: Source, own: ast.FunctionDef, call: ast.Call, around: ast.FunctionDef
) -> bool:
    """Whether a call, which is made in any case, tells by plain values to switch gradients off."""
    statement = culprit.statement
    assert statement is not None
    decides, given = _decides(culprit.source, statement, own), arguments_of(own, call)
    own_names = {one.arg for one in (*own.args.args, *own.args.kwonlyargs)}
    is_plain = all(isinstance(given.get(one, ast.Constant(0)), ast.Constant) for one in decides)
    return decides <= own_names and is_plain and not _decides(source, call, around)


def _decides(source: Source, node: ast.AST, function: ast.FunctionDef) -> set[str]:
    """The names that tell, in a function, whether something in it is reached, and whether a switch
    there is one."""
    around = takewhile(lambda one: one is not function, ancestors(source, node))
    tests = [one.test for one in around if isinstance(one, ast.If | ast.While | ast.IfExp)]
    if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
        tests += [*call.args, *(one.value for one in call.keywords)]
    return set[str]().union(*map(names_in, tests))


def _computes_below(function: ast.FunctionDef, statement: ast.stmt) -> bool:
    """Whether a value is called for below a statement."""
    alone = {id(one.value) for one in parts(function, ast.Expr)}
    below = (one for one in parts(function, ast.Call) if one.lineno > statement.lineno)
    return any(id(one) not in alone for one in below)


def _differentiates(
    culprit: Culprit, function: ast.FunctionDef, backward: tuple[Location, ...]
) -> bool:
    """Whether a backward pass runs in a function, as far as is seen."""
    source = culprit.source
    led = (statement_at(source, one) for one in backward if one.file == source.file)
    if any(one is not None and source.nodes.function(one) is function for one in led):
        return True
    return _runs_backward(function)


def _runs_backward(node: ast.stmt) -> bool:
    return any(called(one) in ("backward", "grad") for one in parts(node, ast.Call))


def _in_block(culprit: Culprit, statement: ast.stmt) -> tuple[Edit, ...]:
    """A `with torch.no_grad():` in the place of a statement, around what is below it in its block,
    up to what runs backward, or makes what that reads, or defines something."""
    source, block = culprit.source, block_of(culprit.source, statement)
    below = block[block.index(statement) + 1 :]
    read = names_in(next(filter(_runs_backward, below), None))
    found = list(takewhile(lambda one: not (isinstance(one, _DEFINES) or _makes(one, read)), below))
    if not found or whole_lines(source, statement) is None:
        return ()
    start, end = past_of(source, statement), source.extent(found[-1])[1]
    opening = f"with {culprit.torch('torch.no_grad()')}"
    text = within(source, opening, statement, source.text[start:end].lstrip())
    return (source.edit(source.extent(statement)[0], end, text),)


def _makes(node: ast.stmt, read: set[str]) -> bool:
    """Whether a statement runs backward, or gives one of the names a value."""
    given = (one.id for one in parts(node, ast.Name) if isinstance(one.ctx, ast.Store))
    return _runs_backward(node) or not read.isdisjoint(given)
