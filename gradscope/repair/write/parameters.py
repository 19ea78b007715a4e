"""What an optimizer is given: other parameters, by the names in sight where it is made."""

import ast
from collections.abc import Iterator, Sequence

from gradscope.facts import Edit, Holder, Scope
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.source import Source, SourceError, expression, read


def given(culprit: Culprit, request: ask.GiveParameters) -> Ways:
    """`Adam(G.parameters())` for `Adam(D.parameters())`, or `made_for(G)` where that is called."""
    for depth, scope in enumerate(request.usage.scopes):
        source = _source_of(culprit, scope)
        call = expression(source, scope.place) if source is not None else None
        wanted = _covering(scope.holders, {*request.leaves})
        if source is None or not isinstance(call, ast.Call) or not wanted:
            continue
        names = {one.text for one in scope.holders if one.held == one.of}
        found = [node for node in _parts(call) if source.of(node) in names]
        if len(found) == len(wanted) == 1:
            yield (source.edit(*source.extent(found[0]), wanted[0]),)
        elif not depth and (edit := _instead(source, call, wanted)) is not None:
            yield (edit,)


def _source_of(culprit: Culprit, scope: Scope) -> Source | None:
    if scope.place.file == culprit.source.file:
        return culprit.source
    try:
        return read(scope.place.file, culprit.texts)
    except SourceError:
        return None


def _parts(call: ast.Call) -> Iterator[ast.expr]:
    """What is written in the arguments, `self.net` before the `self` in it, and not that."""
    waiting: list[ast.AST] = [*call.args, *call.keywords]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            yield node
        waiting.extend(ast.iter_child_nodes(node))


def _covering(holders: Sequence[Holder], wanted: set[str]) -> list[str]:
    """The fewest of the modules that hold these and nothing else that has a gradient, and nothing
    that the optimizer was given, if there are such."""
    found, left = [], set(wanted)
    for one in sorted(holders, key=lambda one: (one.held, -len(one.leaves))):
        if one.leaves and left.issuperset(one.leaves):
            found.append(one.text)
            left -= {*one.leaves}
    return found if not left else []


def _instead(source: Source, call: ast.Call, wanted: Sequence[str]) -> Edit | None:
    """All that the constructor is given first."""
    named = (key.value for key in call.keywords if key.arg == "params")
    first = call.args[0] if call.args else next(named, None)
    text = ", ".join(f"*{one}.parameters()" for one in wanted)
    text = f"[{text}]" if len(wanted) > 1 else f"{wanted[0]}.parameters()"
    return source.edit(*source.extent(first), text) if first is not None else None
