"""Frozen parts in eval mode again, after the `train()` that sets them back (GS410)."""

import ast
from collections.abc import Iterator

from gradscope.facts import BackToTrain, Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.parameters import HOLDERS, source_of
from gradscope.repair.write.splice import after
from gradscope.source import Source, expression
from gradscope.source.spans import targets_of

_MOST = 8  # that are named one by one
_FEW = 2


def after_train(culprit: Culprit, request: ask.SetEvalAgain) -> Ways:
    """`model.encoder.eval()` after `model.train()`, at all places; where it was called while the
    part was trained too, if no parameter of the part requires a gradient."""
    edits = list[Edit]()
    for back in (one for one in request.undone.calls if one.paths):
        source = source_of(culprit, back.place) if back.place is not None else None
        call = expression(source, back.place) if source is not None else None
        if source is None or not isinstance(call, ast.Call):
            return
        holder = _holder(source, call)
        lines = tuple(_lines(source, back, holder)) if holder else ()
        added = after(source, source.nodes.statement(call), *lines) if lines else ()
        if not added:
            return
        edits += added
    yield edits


def _holder(source: Source, call: ast.Call) -> str:
    """What the module whose `train()` is called goes by after the statement."""
    above = source.parents[call]
    match call.func:
        case ast.Attribute(ast.Call(ast.Name("super"), args=[]), "train"):
            function = source.nodes.function(call)
            own = function.args.args if isinstance(function, ast.FunctionDef) else []
            return own[0].arg if own and isinstance(above, ast.Expr) else ""
        case ast.Attribute(value, "train") if isinstance(above, ast.Expr):
            return source.of(value) if isinstance(value, HOLDERS) else ""
        case ast.Attribute(attr="train") if isinstance(above, ast.Assign | ast.AnnAssign):
            return next(map(source.of, targets_of(source, call)), "")
    return ""


def _lines(source: Source, back: BackToTrain, holder: str) -> Iterator[str]:
    kinds = ", ".join(filter(None, map(source.names.spell, back.layers)))
    if len(back.paths) > _FEW and kinds:
        kinds = f"({kinds})" if len(back.layers) > 1 else kinds
        one = next(source.free(("layer", "part", "module")), "_")
        yield f"for {one} in {holder}.modules():"
        yield f"    if isinstance({one}, {kinds}) and {_frozen(one)}:"
        yield f"        {one}.eval()"
        return
    for path in back.paths if len(back.paths) <= _MOST else ():
        if not back.always:
            yield f"if {_frozen(holder + path)}:"
        yield f"{'' if back.always else '    '}{holder}{path}.eval()"


def _frozen(module: str) -> str:
    return f"not any(p.requires_grad for p in {module}.parameters())"
