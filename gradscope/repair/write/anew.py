"""What is computed once, and has to be for each backward: where it is computed, or read."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from gradscope.facts import Call, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit, Edits, Ways
from gradscope.repair.write.cycles import loops_around
from gradscope.repair.write.initial import PARAMETERS
from gradscope.repair.write.splice import before, commented, whole_lines
from gradscope.repair.write.statements import block_of, dropped, is_on, lines_of, not_needed
from gradscope.repair.write.uses import class_of
from gradscope.source import Source
from gradscope.source.spans import statement_at
from gradscope.source.tree import names_in, parts

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


def each_turn(culprit: Culprit, request: ask.ComputeAnew) -> Ways:
    """What stands before the loop, or before the closure that calls backward, at its begin, and
    where it stood as well where something else reads it there; what a constructor has kept, where
    that is read; what a cache or a condition runs once, without that."""
    source, backward = culprit.source, statement_at(culprit.source, request.backward)
    made = [statement_at(source, one.location) for one in request.calls]
    parameters = [way for one in made if one is not None for way in whole_parameter(culprit, one)]
    yield from parameters
    if backward is None or parameters:  # a new one in each turn would learn nothing
        return
    frames = dict.fromkeys(frame for one in request.calls for frame in one.frames)
    inner = dict.fromkeys(chain.from_iterable(_from(request.once, one) for one in request.calls))
    yield from (_uncached(culprit, place) for place in inner)
    read = [*chain.from_iterable(_where_read(culprit, one, request.once) for one in frames)]
    yield from read or _in_its_reader(culprit, request)
    calls = [_within(request.once, one) for one in request.calls]
    function = source.nodes.function(backward)
    turns: list[ast.For | ast.While | ast.FunctionDef] = [*loops_around(source, backward)]
    turns += [function] if isinstance(function, ast.FunctionDef) else []
    for turn in turns:
        block, within = block_of(source, turn), request.backward.function
        if turn is function:
            within = within.rpartition(".<locals>.")[0] or "<module>"
        lines = lines_of(calls, replace(request.backward, function=within))
        above = [one for part in block[: block.index(turn)] for one in _opened(part)]
        found = [one for one in above if is_on(one, lines)]
        if found and all(isinstance(one, _SIMPLE) and whole_lines(source, one) for one in found):
            edits = before(source, turn.body[0], *(commented(source, one) for one in found))
            gone = not_needed(found, [one for one in above if one not in found])
            yield [*(dropped(source, one) for one in gone), *edits]
            return
    for place in dict.fromkeys((*inner, *(one.location for one in request.calls))):
        yield _unconditional(culprit, place)
        yield _without_return(culprit, place)


def _from(once: Location | None, call: Call) -> Iterator[Location]:
    """The lines on the way to a call from the one on that has run once, the outermost first."""
    if once in call.frames:
        yield from reversed(call.frames[: call.frames.index(once) + 1])


def _within(once: Location | None, call: Call) -> Call:
    """A call, seen from the function on that has run a line on the way to it once."""
    if once is None:
        return call
    inner = [(one.file, one.function) for one in call.frames]
    place = once.file, once.function
    return replace(call, frames=call.frames[: inner.index(place) + 1]) if place in inner else call


_CACHES = {
    "functools.cached_property": "property",
    "functools.lru_cache": "",
    "functools.cache": "",
}


def _uncached(culprit: Culprit, place: Location) -> Edits:
    """`@property` for `@cached_property`, and no `@lru_cache`, over the function around a place."""
    source, statement = culprit.source, statement_at(culprit.source, place)
    function = source.nodes.function(statement) if statement is not None else None
    if not isinstance(function, ast.FunctionDef):
        return ()
    found = [one for one in function.decorator_list if culprit.dotted(one) in _CACHES]
    if len(found) != 1:
        return ()
    (cache,) = found
    if text := _CACHES[culprit.dotted(cache)]:
        return [source.replaced(cache, text)]
    last = cache.end_lineno or cache.lineno
    return [source.edit(source.offset(cache.lineno, 0), source.offset(last + 1, 0), "")]


def _opened(statement: ast.stmt) -> Iterator[ast.stmt]:
    """A statement, or those in the body of a loop."""
    if isinstance(statement, ast.For | ast.While):
        yield from chain.from_iterable(map(_opened, statement.body))
    else:
        yield statement


def _where_read(culprit: Culprit, place: Location, once: Location | None) -> Iterator[Candidate]:
    """`self.adjacency()` for each `self.adj` in the other methods, where `__init__` has computed it
    from what is the module's own, or was given, which it keeps then."""
    source, made = culprit.source, statement_at(culprit.source, place)
    if not isinstance(made, ast.Assign) or len(made.targets) > 1:
        return
    kept, function = made.targets[0], source.nodes.function(made)
    if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
        return
    if not isinstance(kept, ast.Attribute):
        return
    names = [one for one in parts(made.value, ast.Name) if one.id != "self"]
    given = [one for one in names if source.nodes.owner(one).node is function]
    known = {one.attr for one in parts(class_of(source, kept), ast.Attribute)}
    own = {one.arg for one in function.args.args}
    is_once = made is statement_at(source, once)
    if any(one.id not in own or one.id in known or not is_once for one in given):
        return
    if reads := _own_reads(source, kept):
        text = source.written(made.value, {one: f"self.{one.id}" for one in given})
        edits = (culprit.replace(one, text) for one in reads)
        lines = [f"self.{name} = {name}" for name in dict.fromkeys(one.id for one in given)]
        title = f"compute `{source.of(kept)}` wherever it is read"
        yield Candidate(title, (dropped(source, made), *before(source, made, *lines), *edits))


def _own_reads(source: Source, kept: ast.Attribute) -> list[ast.Attribute]:
    """Where the methods of a class read an attribute that is set once; empty where others do."""
    owner = class_of(source, kept)
    others = [one for one in source.nodes.every(ast.Attribute) if one.attr == kept.attr]
    reads = [one for one in others if one is not kept and class_of(source, one) is owner]
    return reads if owner is not None and len(reads) + 1 == len(others) else []


def _in_its_reader(culprit: Culprit, request: ask.ComputeAnew) -> Iterator[Candidate]:
    """The lines of `__init__` that have computed what the one other method of the class reads, in
    that method."""
    source, once = culprit.source, request.once
    statement = statement_at(source, once)
    function = source.nodes.function(statement) if statement is not None else None
    if once is None or not isinstance(function, ast.FunctionDef) or function.name != "__init__":
        return
    lines, found, names = lines_of(request.calls, once), list[ast.stmt](), set[str]()
    for one in function.body:
        if is_on(one, lines) or names & names_in(one):
            found.append(one)
            names |= {name.id for name in parts(one, ast.Name) if isinstance(name.ctx, ast.Store)}
    written = [one for made in found if isinstance(made, ast.Assign) for one in made.targets]
    kept = [one for one in written if isinstance(one, ast.Attribute)]
    reads = _own_reads(source, kept[0]) if len(kept) == 1 else []
    if len(written) < len(found) or not all(whole_lines(source, one) for one in found):
        return
    readers = {source.nodes.function(one) for one in reads}
    (reader,) = readers if len(readers) == 1 else (None,)
    if not isinstance(reader, ast.FunctionDef) or reader is function:
        return
    if source.parents[reader] is not source.parents[function]:
        return
    own = (one for made in found for one in parts(made, ast.Name) if one.id != "self")
    given = {one.id for one in own if source.nodes.owner(one).node is function}
    name = kept[0].attr
    if given - names or (names | {name}) & names_in(reader):
        return
    whole = re.compile(rf"{re.escape(source.of(kept[0]))}(?!\w)")
    texts = [whole.sub(name, commented(source, made)) for made in found]
    first = reader.body[bool(ast.get_docstring(reader))]
    edits = (source.replaced(one, name) for one in reads)
    title = f"compute `{source.of(kept[0])}` in `{reader.name}`, where it is read"
    gone = (dropped(source, one) for one in found)
    yield Candidate(title, (*gone, *before(source, first, *texts), *edits))


def whole_parameter(culprit: Culprit, made: ast.stmt) -> Iterator[Candidate]:
    """`Parameter(x * std)` for `Parameter(x) * std`, which is no leaf and computed once."""
    value = made.value if isinstance(made, ast.Assign | ast.AnnAssign) else None
    calls = parts(value, ast.Call)
    inside = [one for one in calls if culprit.dotted(one) in PARAMETERS and one.args]
    if value is not None and len(inside) == 1 and inside[0] is not value:
        (call,) = inside
        text = culprit.source.written(value, {call: culprit.text(call.args[0])})
        name = culprit.source.of(call.func)
        yield culprit.written("make a parameter of the whole", value, f"{name}({text})")


def _unconditional(culprit: Culprit, place: Location | None) -> Edits:
    """The body of the `if` around a place, at its depth."""
    source, statement = culprit.source, statement_at(culprit.source, place)
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


def _without_return(culprit: Culprit, place: Location | None) -> Edits:
    """The statement without the `if self.kept is not None: return self.kept` above it."""
    source, statement = culprit.source, statement_at(culprit.source, place)
    block = block_of(source, statement) if statement is not None else []
    for at, one in enumerate(block):
        match one:
            case _ if one is statement:
                break
            case ast.If(body=[ast.Return(ast.Attribute() | ast.Subscript() as kept)], orelse=[]):
                made = chain.from_iterable(parts(below, ast.Assign) for below in block[at + 1 :])
                targets = chain.from_iterable(below.targets for below in made)
                if whole_lines(source, one) and source.of(kept) in map(source.of, targets):
                    return [dropped(source, one)]
    return ()
