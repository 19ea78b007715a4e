"""An optimizer made anew where modules take the place of those that it holds."""

import ast
from collections.abc import Iterator, Sequence
from itertools import chain

from gradscope.dataclass import dataclass
from gradscope.facts import Edit, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit, Ways
from gradscope.repair.write.cycles import moved, steps
from gradscope.repair.write.splice import after
from gradscope.repair.write.statements import block_of
from gradscope.repair.write.uses import calls_around
from gradscope.source import Source, definition, expression
from gradscope.source.scopes import Comprehension, Scope
from gradscope.source.spans import ancestors, statement_at
from gradscope.source.tree import names_in, parts

_ANEW = "make the optimizer anew for the parameters that are there now"
Method = tuple[ast.FunctionDef, ast.ClassDef]


@dataclass(frozen=True)
class _Making:
    """The statement that makes an optimizer, and those that make schedules for it."""

    source: Source
    made: ast.stmt
    schedules: tuple[ast.stmt, ...]

    def until(self, place: ast.stmt) -> tuple[ast.stmt, ...]:
        """Without the schedules that the function of a place makes below it anyway."""
        function = self.source.nodes.function(place)
        return self.made, *(
            one
            for one in self.schedules
            if self.source.nodes.function(one) is not function or one.lineno < place.lineno
        )


def remade(culprit: Culprit, request: ask.MakeOptimizerAnew) -> Ways:
    """The optimizer, or the object that makes it, made below what replaces modules before it has
    stepped; else made there once more, by the same words and with its schedules, where all that
    these read is in sight."""
    source, _ = culprit.found(request.made)
    schedules = [[*_givers(source, place)] for place in request.scheduled_at]
    for made in _makers(source, request.made):
        making = _Making(source, made, tuple(_beside(source, made, schedules)))
        yield Candidate("make the optimizer after the model is complete", _below(making, request))
    for made in _givers(source, request.made) if all(schedules) else ():
        making = _Making(source, made, tuple(_beside(source, made, schedules)))
        yield Candidate(_ANEW, _again(making, request))


def _makers(source: Source, place: Location) -> Iterator[ast.stmt]:
    """The statements that keep what is made at a place, or by a call of its function."""
    call = expression(source, place)
    for one in (call, *calls_around(source, call)) if call is not None else ():
        if _target(made := source.nodes.statement(one)) is not None:
            yield made


def _givers(source: Source, place: Location) -> Iterator[ast.stmt]:
    """Those of them that keep that itself: of a call, where the function returns it."""
    own = source.nodes.statement(call) if (call := expression(source, place)) is not None else None
    target, function = _target(own), source.nodes.function(own) if own is not None else None
    names = {target.id} if isinstance(target, ast.Name) else set[str]()
    is_returned = any(one is own or names_in(one) & names for one in parts(function, ast.Return))
    return (one for one in _makers(source, place) if one is own or is_returned)


def _beside(
    source: Source, made: ast.stmt, schedules: Sequence[Sequence[ast.stmt]]
) -> list[ast.stmt]:
    """Of the statements that keep a schedule each, those in the function of another one."""
    function, found = source.nodes.function(made), dict[ast.stmt, None]()
    for givers in schedules:
        own = [one for one in givers if source.nodes.function(one) is function]
        found |= dict.fromkeys((own or givers)[:1])
    return sorted(found, key=lambda one: one.lineno)


def _target(statement: ast.stmt | None) -> ast.expr | None:
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
            return target
        case ast.AnnAssign(target=ast.Name() | ast.Attribute() as target, value=ast.expr()):
            return target
    return None


def _below(making: _Making, request: ask.MakeOptimizerAnew) -> tuple[Edit, ...]:
    """Moved there, with the schedules in between, if nothing in between steps or reads it."""
    source, made, block = making.source, making.made, block_of(making.source, making.made)
    function, places = source.nodes.function(made), []
    for lines in request.replaced_by:
        statements = filter(None, (statement_at(source, line) for line in lines))
        here = [one for one in statements if source.nodes.function(one) is function]
        around = [one for each in here for one in (each, *ancestors(source, each))]
        places += [one for one in block if one in around][:1]
    last = max(places, key=block.index, default=made)
    if len(places) < len(request.replaced_by) or last.lineno <= made.lineno:
        return ()
    between, name = block[block.index(made) + 1 : block.index(last) + 1], _target(made)
    wanted = (made, *(one for one in between if one in making.schedules))
    others = [one for one in between if one not in wanted]
    reads = {source.of(one) for other in others for one in parts(other, ast.expr)}
    if any(steps(source, one) for one in others) or (name and source.of(name) in reads):
        return ()
    edits = [moved(source, one, last) for one in wanted]
    return tuple(chain.from_iterable(edits)) if all(edits) else ()


def _again(making: _Making, request: ask.MakeOptimizerAnew) -> tuple[Edit, ...]:
    source, placed = making.source, dict[tuple[int, tuple[str, ...]], ast.stmt]()
    for lines in request.replaced_by:
        found = next(_insights(making, lines), None)
        if found is None:
            return ()
        place, texts = found
        key = id(block_of(source, place)), texts  # once a block is enough
        placed[key] = max(placed.get(key, place), place, key=lambda one: one.lineno)
    edits = [after(source, place, *texts) for (_, texts), place in placed.items()]
    return tuple(chain.from_iterable(edits)) if all(edits) else ()


def _insights(
    making: _Making, lines: Sequence[Location]
) -> Iterator[tuple[ast.stmt, tuple[str, ...]]]:
    """The statements on the way to one that replaces a module, out of loops in which nothing
    steps, from which all is in sight; with the text that makes the optimizer there."""
    source = making.source
    for place in (statement_at(source, line) for line in lines):
        if place is None:
            continue
        while isinstance(around := source.parents[place], ast.For | ast.While):
            if steps(source, around):
                break
            place = around
        texts = [_text_at(source, one, place) for one in making.until(place)]
        if None not in texts:
            yield place, tuple(one for one in texts if one is not None)


def _text_at(source: Source, statement: ast.stmt, place: ast.stmt) -> str | None:
    """A statement as it is to be written at a place to mean the same; None where that has no name
    for something in it."""
    here, there = (source.nodes.scope(one).function for one in (statement, place))
    texts = dict[ast.expr, str]()
    for name in parts(statement, ast.Name):
        owner = source.nodes.owner(name)
        if here is there or isinstance(owner.node, Comprehension | ast.Lambda):
            continue
        is_read = isinstance(name.ctx, ast.Load)
        if is_read and owner is _seen_from(there, name.id):
            continue
        written = _as_seen(source, name, here, place) if owner is here else None
        if written is None:
            return None
        texts[name] = written
    return source.written(statement, texts)


def _seen_from(scope: Scope, name: str) -> Scope:
    """The scope whose name it is there, be it used there or not."""
    while scope.parent is not None and not scope.bindings.get(name):
        scope = scope.parent
        while isinstance(scope.node, ast.ClassDef) and scope.parent is not None:
            scope = scope.parent
    return scope


def _as_seen(source: Source, name: ast.Name, here: Scope, place: ast.stmt) -> str | None:
    """What a name of a method is called at a place outside of it: the object, or the attribute that
    it is kept as."""
    method, other = _method(source, here.node), _method(source, source.nodes.function(place))
    if method is None:
        return None
    function, kind = method
    own = function.args.args[0].arg
    if other is not None and other[1] is kind:
        instance: str | None = other[0].args.args[0].arg
    else:
        made = {
            one.id
            for one in parts(place, ast.Name)
            if isinstance(call := definition(source, one), ast.Call)
            if isinstance(call.func, ast.Name) and call.func.id == kind.name
        }
        instance = made.pop() if len(made) == 1 else None
    if instance is None or name.id == own:
        return instance
    kept = [
        target.attr
        for target, value in source.nodes.given()
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
        if isinstance(value, ast.Name) and value.id == name.id and target.value.id == own
        if source.nodes.function(target) is function
    ]
    stores = [
        one.attr
        for one in parts(kind, ast.Attribute)
        if isinstance(one.ctx, ast.Store) and one.attr in kept
    ]
    is_sure = len(kept) == len(stores) == len(here.bindings[name.id]) == 1
    return f"{instance}.{kept[0]}" if is_sure else None


def _method(source: Source, node: ast.AST) -> Method | None:
    """A function that has an object of the class that it is defined in."""
    kind = source.parents.get(node)
    if isinstance(node, ast.FunctionDef) and isinstance(kind, ast.ClassDef):
        return (node, kind) if node.args.args and not node.decorator_list else None
    return None
