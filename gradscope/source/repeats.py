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
    it in a loop: in what a statement keeps, also through names and functions of the file."""
    waiting, seen = list[ast.AST]([statement]), set[ast.AST]()
    while waiting and len(seen) < _MOST:
        node = waiting.pop(0)
        if node in seen:
            continue
        seen.add(node)
        own = (one for one in ast.walk(node) if isinstance(one, ast.expr) and is_repeated(one))
        found = next(own, None) or next(_appending(source, node), None)
        if found is not None:
            return found
        waiting += _behind(source, node)
    return None


def is_repeated(node: ast.expr) -> bool:
    match node:
        case ast.BinOp(left, ast.Mult(), right):
            return any(_holds_objects(one) for one in (left, right))
        case ast.ListComp(elt, generators) | ast.GeneratorExp(elt, generators):
            given = set[str]().union(*(names_in(one.target) for one in generators))
            return isinstance(elt, _HELD) and given.isdisjoint(names_in(elt))
        case ast.List(elts) | ast.Tuple(elts):
            held = [ast.dump(one) for one in elts if isinstance(one, _HELD)]
            return isinstance(node.ctx, ast.Load) and len({*held}) < len(held)
    return False


def _holds_objects(node: ast.expr) -> bool:
    elements = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    return bool(elements) and all(isinstance(one, _HELD | ast.Call) for one in elements)


def _appending(source: Source, node: ast.AST) -> Iterator[ast.expr]:
    """What appends the same object in each turn of a loop to what a statement or a name stands
    for."""
    targets = [node] if isinstance(node, ast.Name) else getattr(node, "targets", [])
    into = {source.of(one) for one in targets}
    for call in source.nodes.every(ast.Call) if into else ():
        match call:
            case ast.Call(ast.Attribute(held, "append"), [ast.Name() | ast.Attribute() as one]):
                loops = [a for a in ancestors(source, call) if isinstance(a, ast.For)]
                is_here = source.nodes.function(call) is source.nodes.function(node)
                if loops and is_here and source.of(held) in into:
                    written = (part for part in parts(loops[0], ast.Name) if _is_given(part))
                    if names_in(one).isdisjoint(part.id for part in written):
                        yield call


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
    for call in parts(node, ast.Call):
        named = [one for one in source.nodes.every(ast.FunctionDef) if one.name == called(call)]
        for made in parts(named[0] if len(named) == 1 else None, ast.Return):
            yield from () if made.value is None else (made.value,)


def given_twice(source: Source, call: ast.Call) -> ast.expr | None:
    """The second `net` of `[*net.parameters(), *net.parameters()]`, in what a call is given, also
    through names, functions of the file, and what is added to a list later."""
    waiting, seen = list[ast.AST]([*call.args, *call.keywords]), set[ast.AST]()
    while waiting and len(seen) < _MOST:
        node = waiting.pop(0)
        if node not in seen:
            seen.add(node)
            waiting += (*_behind(source, node), *_collected(source, node))
    found = {one: None for node in seen for one in _listed(source, node)}
    first = dict[tuple[ast.AST, str], ast.expr]()
    for one in sorted(found, key=lambda one: (one.lineno, one.col_offset)):
        key = source.nodes.function(one), source.of(one)
        if first.setdefault(key, one) is not one:
            return one
    return None


def _collected(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """What a name is given in its function, whatever is done to it there."""
    if not isinstance(node, ast.Name):
        return
    for one in parts(source.nodes.function(node), ast.stmt):
        match one:
            case ast.Assign(targets=[target], value=value):
                is_its = isinstance(target, ast.Name) and target.id == node.id
            case ast.AugAssign(target=target, value=value):
                is_its = isinstance(target, ast.Name) and target.id == node.id
            case ast.For(target=target, iter=value):
                is_its = node.id in names_in(target)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method)) as value):
                is_its = name == node.id and method in _ADDS
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
