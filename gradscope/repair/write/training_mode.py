"""`train()` and `eval()`, where training goes on and where an evaluation begins."""

import ast
from collections.abc import Sequence

from gradscope.facts import Edit, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.splice import before
from gradscope.source import Source
from gradscope.source.hand_updates import Holder
from gradscope.source.spans import ancestors

_AROUND = (ast.For, ast.While, ast.With)


def set_right(culprit: Culprit, request: ask.SetMode) -> Ways:
    """`model.train()` before the loop that trains, as far out as it does not hold the other place
    too; and `model.eval()` so before an evaluation that forgot it."""
    kept = request.kept
    edits = _told(culprit, kept.trains_at, kept.sites, "train")
    if edits and kept.mode == "train":
        evaluation = _told(culprit, kept.sites, kept.trains_at, "eval")
        edits = (*evaluation, *edits) if evaluation else ()
    yield edits


def _told(
    culprit: Culprit, here: Sequence[Location], there: Sequence[Location], mode: str
) -> tuple[Edit, ...]:
    """The mode set before the call of the model `here`, by the name that it has there."""
    source, call = culprit.source, culprit.at(here[0]) if here else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, Holder):
        return ()
    lines = {one.line for one in there if one.file == here[0].file}
    name = source.of(call.func)
    return before(source, _outermost(source, call, lines), f"{name}.{mode}()")


def _outermost(source: Source, call: ast.Call, others: set[int]) -> ast.stmt:
    """The statement with a call, or the outermost loop or `with` around it in its function that has
    none of the other lines in it."""
    found = source.nodes.statement(call)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for one in ancestors(source, found):
        if not isinstance(one, ast.stmt) or isinstance(one, functions):
            break
        if any(one.lineno <= line <= (one.end_lineno or 0) for line in others):
            break
        found = one if isinstance(one, _AROUND) else found
    return found
