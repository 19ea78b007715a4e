"""Where a text puts one object into a container several times, or lists a module's parameters
twice."""

import ast
from collections.abc import Iterator

from gradscope.source.arguments import called
from gradscope.source.meaning import definition
from gradscope.source.spans import ancestors
from gradscope.source.text import Source
from gradscope.source.tree import names_in, parts

_MOST = 32  # expressions that are looked through
_HELD = ast.Name | ast.Attribute
_LISTS = ("parameters", "named_parameters")
_ADDS = ("append", "extend", "update")


def repetition(source: Source, statement: ast.stmt) -> ast.expr | None:
    """`[x] * n`, `[x for _ in range(n)]` of an `x` from outside, `[x, x]`, or the call that appends
    it in a loop: in what a statement keeps, also through names, functions and classes of the file.
    """
    for node in _behind_all(source, statement):
        parts_of = (one for one in ast.walk(node) if isinstance(one, ast.expr))
        own = (one for one in parts_of if is_repeated(source, one))
        found = next(own, None) or next(_appending(source, node), None)
        if found is not None:
            return found
    return None


def _behind_all(source: Source, *nodes: ast.AST) -> Iterator[ast.AST]:
    """These, and what they are made of."""
    waiting, seen = list[ast.AST](nodes), set[ast.AST]()
    while waiting and len(seen) < _MOST:
        node = waiting.pop(0)
        if node not in seen:
            seen.add(node)
            yield node
            waiting += (*_behind(source, node), *_collected(source, node))


def is_repeated(source: Source, node: ast.expr) -> bool:
    match node:
        case ast.BinOp(left, ast.Mult(), right):
            return any(_holds_objects(one) for one in (left, right))
        case ast.ListComp(one, turns) | ast.GeneratorExp(one, turns) | ast.DictComp(_, one, turns):
            given = set[str]().union(*(names_in(turn.target) for turn in turns))
            return isinstance(one, _HELD) and given.isdisjoint(names_in(one))
        case ast.List(elts) | ast.Tuple(elts):
            return isinstance(node.ctx, ast.Load) and _are_alike(elts)
        case ast.Dict(values=values):
            return _are_alike(values)
        case ast.Call(args=[one, _]) if isinstance(one, _HELD | ast.Call):
            return source.names.dotted(node.func) == "itertools.repeat"
        case ast.Call(ast.Attribute(ast.Name("dict"), "fromkeys"), [_, one]):
            return isinstance(one, _HELD | ast.Call)
    return False


def _are_alike(elements: list[ast.expr]) -> bool:
    held = [ast.dump(one) for one in elements if isinstance(one, _HELD)]
    return len({*held}) < len(held)


def _holds_objects(node: ast.expr) -> bool:
    elements = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    return bool(elements) and all(isinstance(one, _HELD | ast.Call) for one in elements)


def _appending(source: Source, node: ast.AST) -> Iterator[ast.expr]:
    """What appends the same object in each turn of a loop to what a statement or a name stands
    for."""
    into = _texts(source, node)
    for call in source.nodes.every(ast.Call) if into else ():
        match call:
            case ast.Call(ast.Attribute(held, "append"), [ast.Name() | ast.Attribute() as one]):
                loops = [a for a in ancestors(source, call) if isinstance(a, ast.For)]
                is_here = source.nodes.function(call) is source.nodes.function(node)
                if loops and is_here and source.of(held) in into:
                    written = (part for part in parts(loops[0], ast.Name) if _is_given(part))
                    if names_in(one).isdisjoint(part.id for part in written):
                        yield call


def _texts(source: Source, node: ast.AST) -> set[str]:
    """Of a name, or of what a statement gives a value."""
    targets = [node] if isinstance(node, ast.Name) else getattr(node, "targets", [])
    return {source.of(one) for one in targets}


def _is_given(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _behind(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """The names that are read in it, what they were given, and what functions of the file return
    that are called there."""
    for name in parts(node, ast.Name):
        if not _is_given(name):
            yield name
            given = definition(source, name)
            yield from () if given is None else (given,)
    functions, classes = source.nodes.every(ast.FunctionDef), source.nodes.every(ast.ClassDef)
    defined: list[ast.FunctionDef | ast.ClassDef] = [*functions, *classes]
    for call in parts(node, ast.Call):
        named = [one for one in defined if one.name == called(call)]
        made = named[0] if len(named) == 1 else None
        if isinstance(made, ast.ClassDef):
            yield from (one for one in parts(made, ast.Call) if called(one) == "__init__")
        else:
            returns = (one.value for one in parts(made, ast.Return))
            yield from (one for one in returns if one is not None)


def given_twice(source: Source, call: ast.Call) -> ast.expr | None:
    """The second `net` of `[*net.parameters(), *net.parameters()]`, in what a call is given, also
    through names, functions of the file, and what is added to a list later."""
    behind = _behind_all(source, *call.args, *call.keywords)
    found = {one: None for node in behind for one in _listed(source, node)}
    first = dict[tuple[ast.AST, str], ast.expr]()
    for one in sorted(found, key=lambda one: (one.lineno, one.col_offset)):
        key = source.nodes.function(one), source.of(one)
        if first.setdefault(key, one) is not one:
            return one
    return None


def _collected(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """What a name, or what a statement gives a value, is given in its function, whatever is done to
    it there."""
    into = _texts(source, node)
    for one in parts(source.nodes.function(node), ast.stmt) if into else ():
        match one:
            case ast.Assign(targets=[target], value=value) | ast.AugAssign(target, _, value):
                is_its = source.of(target) in into
            case ast.For(target=target, iter=value):
                is_its = not into.isdisjoint(names_in(target))
            case ast.Expr(ast.Call(ast.Attribute(held, method)) as value):
                either = (held.body, held.orelse) if isinstance(held, ast.IfExp) else (held,)
                is_its = method in _ADDS and not into.isdisjoint(map(source.of, either))
            case _:
                continue
        if is_its:
            yield value


def _listed(source: Source, node: ast.AST) -> Iterator[ast.expr]:
    """The modules whose parameters it lists, and those that it goes through."""
    for part in ast.walk(node):
        match part:
            case ast.Call(ast.Attribute(ast.Name() | ast.Attribute() as held, method)):
                if method in _LISTS:
                    yield held
            case ast.Tuple(elts) | ast.List(elts):
                around = source.parents[part]
                if isinstance(around, ast.For | ast.comprehension) and around.iter is part:
                    yield from (one for one in elts if isinstance(one, _HELD))
