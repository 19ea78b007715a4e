"""What modules do in train mode and in eval mode: the mode set, dropout by it, and what BatchNorm
keeps (GS410)."""

import ast
from collections.abc import Iterator, Sequence

from gradscope.facts import BackToTrain, Edit, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.parameters import HOLDERS
from gradscope.repair.write.splice import after, before, keyword
from gradscope.source import Source
from gradscope.source.arguments import argument, called
from gradscope.source.hand_updates import Holder
from gradscope.source.spans import ancestors, targets_of
from gradscope.source.tree import covers, parts

_MOST = 8  # that are named one by one
_FEW = 2


def after_train(culprit: Culprit, request: ask.SetEvalAgain) -> Ways:
    """`model.encoder.eval()` after `model.train()`, at all places; where it was called while the
    part was trained too, if no parameter of the part requires a gradient."""
    edits = list[Edit]()
    for back in (one for one in request.undone.calls if one.paths):
        source, call = culprit.found(back.place)
        if not isinstance(call, ast.Call):
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


def in_training(culprit: Culprit, request: ask.DropInTraining) -> Ways:
    """`F.dropout(x, training=self.training)`, and `dropout_p=p if self.training else 0.0`, at all
    places."""
    edits = list[Edit]()
    for drop in request.kept.drops:
        source, call = culprit.found(drop.place)
        if not isinstance(call, ast.Call) or not drop.flag:
            return
        share = argument(call, drop.argument, drop.position)
        if share is None:
            edits.append(keyword(source, call, drop.argument, drop.flag))
        else:
            given = source.of(share) if isinstance(share, ast.Constant) else culprit.text(share)
            edits.append(source.replaced(share, f"{given} if {drop.flag} else 0.0"))
    yield edits


_AROUND = (ast.For, ast.While, ast.With)


def set_mode(culprit: Culprit, request: ask.SetMode) -> Ways:
    """`model.train()` before the loop that trains, as far out as it does not hold the other place
    too; and `model.eval()` so before an evaluation that forgot it."""
    kept = request.kept
    edits = _mode_set(culprit, kept.trains_at, kept.sites, "train")
    if edits and kept.mode == "train":
        evaluation = _mode_set(culprit, kept.sites, kept.trains_at, "eval")
        edits = (*evaluation, *edits) if evaluation else ()
    yield edits


def statistics_followed(culprit: Culprit, request: ask.FollowStatistics) -> Ways:
    """`own.copy_(other)` for the buffers, below the loop that goes through the parameters."""
    source, stale, place = culprit.source, request.stale, culprit.statement
    if place is None or stale.written_at is None or not (stale.own and stale.other):
        return
    around = (place, *ancestors(source, place))
    loop = next((one for one in around if isinstance(one, ast.For)), None)
    goes_through = {called(one) for one in parts(loop and loop.iter, ast.Call)}
    if goes_through.isdisjoint(("parameters", "named_parameters")):
        loop = None
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(), ast.Name()] as names),
            iter=ast.Call(func=ast.Name("zip"), args=[_, _] as both),
        ) if {source.of(one) for one in both} == {
            f"{one}.parameters()" for one in (stale.own, stale.other)
        }:
            first = source.of(both[0]) == f"{stale.own}.parameters()"
            own, other = map(source.of, names if first else reversed(names))
            pairs = source.of(loop.iter).replace(".parameters()", ".buffers()")
            lines = f"for {source.of(loop.target)} in {pairs}:", f"    {own}.copy_({other})"
        case _:
            pairs = f"zip({stale.own}.buffers(), {stale.other}.buffers())"
            lines = f"for own, other in {pairs}:", "    own.copy_(other)"
    yield after(source, loop or place, *lines)


def _mode_set(
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
        if any(covers(one, line) for line in others):
            break
        found = one if isinstance(one, _AROUND) else found
    return found


def slower(culprit: Culprit, request: ask.LowerMomentum) -> Ways:
    """`momentum=0.01` for `momentum=0.99`, wherever the number is written; `1 - momentum` of what
    is no number there."""
    edits = list[Edit]()
    for place in request.hasty.places:
        source, node = culprit.found(place)
        text = f"{1 - request.hasty.momentum:.6g}"
        if not isinstance(node, ast.expr):
            return
        match node:
            case ast.Call():
                edits.append(keyword(source, node, "momentum", text))
            case ast.Constant():
                edits.append(source.replaced(node, text))
            case ast.BinOp(ast.Constant(1), ast.Sub(), other):
                edits.append(source.replaced(node, source.of(other)))
            case _:
                edits.append(source.replaced(node, f"1 - {culprit.text(node)}"))
    yield edits
