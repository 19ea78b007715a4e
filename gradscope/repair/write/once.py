"""What a patch writes twice, and what runs a part of the program each time: computed once."""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import Edit
from gradscope.ops import lookup
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.spelling import MOVES
from gradscope.repair.write.splice import before, spliced
from gradscope.source import Source
from gradscope.source.arguments import ARGUMENTS, called, canonical
from gradscope.source.spans import ancestors

_SIMPLE = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr
# What evaluates its parts elsewhere, many times or not at all.
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_INNER = (ast.Lambda, *_COMPREHENSIONS, ast.IfExp, ast.BoolOp)
_NAMES = ("values", "computed")


def computed_once(culprit: Culprit, one: Candidate) -> Candidate:
    """The candidate with a name, on a line before, for each call of a module or function
    of the program that it would write a second time: that would draw its dropout again, count its
    batch twice, and take its time. Left as it is where no line can be put there."""
    source = culprit.source
    for call in _calls(culprit):
        text, place = source.of(call), source.nodes.statement(call)
        written = [edit.text.count(text) for edit in one.edits]
        if not any(written) or spliced(source, one.edits).count(text) <= source.text.count(text):
            continue
        taken = {name.id for name in source.nodes.every(ast.Name)}
        name = next((name for name in _names(source, call) if name not in taken), None)
        starts = [(edit.line, edit.col) for edit in one.edits if text in edit.text]
        is_first = all((place.lineno, 0) <= start for start in starts)
        line = before(source, place, f"{name} = {text}") if name and is_first else ()
        if not line or not isinstance(place, _SIMPLE):
            continue
        edits = [replace(edit, text=edit.text.replace(text, str(name))) for edit in one.edits]
        if not any(_covers(source, edit, call) for edit in one.edits):
            edits.append(source.edit(*source.extent(call), str(name)))
        title = one.title.replace(text, str(name))
        one = replace(one, title=title, edits=(*line, *edits))
    return one


def _names(source: Source, call: ast.Call) -> Iterator[str]:
    """`scores_amax` of `scores.amax(-1)`."""
    match call.func:
        case ast.Attribute(ast.Name(owner), method) if owner != "self":
            if source.names.dotted(call.func) is None:
                yield f"{owner}_{method}"
    yield from _NAMES


def _calls(culprit: Culprit) -> Iterator[ast.Call]:
    """The calls of the culprit's function that are no op of torch, as far as the text tells."""
    source, node = culprit.source, culprit.node
    where = source.nodes.function(node) if node is not None else None
    for call in source.nodes.every(ast.Call):
        is_here = source.nodes.function(call) is where and call.args
        if not is_here or (source.names.dotted(call.func) or "").startswith("torch."):
            continue
        name = called(call)
        is_op = name in ARGUMENTS or canonical(name) in MOVES or lookup(canonical(name)) is not None
        is_python = isinstance(call.func, ast.Name) and hasattr(builtins, name)
        is_inner = any(isinstance(around, _INNER) for around in ancestors(source, call))
        if not (is_op or is_python or is_inner or "\n" in source.of(call)):
            yield call


def _covers(source: Source, edit: Edit, call: ast.Call) -> bool:
    first, last = source.extent(call)
    start, end = source.offset(edit.line, edit.col), source.offset(edit.end_line, edit.end_col)
    return start <= first and last <= end
