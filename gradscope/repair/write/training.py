"""Repairs of the training, not of the loss: the optimizer's arguments, the scale of the loss,
clipping before each step, written or moved to where it bounds the step, and the model's mode."""

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from gradscope.facts import requests as ask
from gradscope.ops.dtypes import Margin, eps_for
from gradscope.repair.write.culprit import Candidate, Culprit, Edits, Ways
from gradscope.repair.write.splice import before, keyword, moved_before
from gradscope.rules.wording import proposals
from gradscope.source import Source, definition, expression, holds
from gradscope.source.arguments import argument, called
from gradscope.source.spans import ancestors, statement_at, targets_of
from gradscope.source.tree import parts

RATES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)  # of the learning rate that diverged
_SCALERS = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.GradScaler")
_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
LOSS_SCALE = 65536.0  # GradScaler's own first scale


def optimizers(culprit: Culprit) -> list[ast.Call]:
    """The calls of the file that construct an optimizer of torch."""
    named = ((one, culprit.dotted(one)) for one in culprit.source.nodes.every(ast.Call))
    return [
        one
        for one, name in named
        if name.startswith("torch.optim.") and not name.startswith("torch.optim.lr_scheduler")
    ]


def optimizer_eps(culprit: Culprit) -> Iterator[Candidate]:
    """An eps that the parameters' dtype can hold next to a squared gradient that underflows."""
    eps = f"{eps_for(culprit.dtype, Margin.DENOMINATOR):g}"
    for call in optimizers(culprit):
        title = f"give the optimizer an eps that {culprit.dtype} can hold"
        yield Candidate(title, (keyword(culprit.source, call, "eps", eps),))


def rates(culprit: Culprit) -> Iterator[Candidate]:
    """The largest power of ten below the learning rate that holds is found by trying."""
    for call in optimizers(culprit):
        given = rate_of(call)
        if isinstance(given, ast.Constant) and isinstance(given.value, int | float):
            for rate in RATES:
                new = given.value * rate
                title = proposals.SLOWER.format(old=given.value, new=new)
                yield culprit.written(title, given, f"{new:g}")


def without_last(culprit: Culprit, request: ask.DropLastBatch) -> Ways:
    """Of the loader that the loop around the culprit goes through; where that stands elsewhere, of
    the only one, or the only one that shuffles."""
    source = culprit.source
    loaders = [*culprit.calls(_LOADERS)]
    around = ancestors(source, culprit.node) if culprit.node is not None else ()
    loops = [one for one in around if isinstance(one, ast.For)]
    named = [one for loop in loops for one in parts(loop.iter, ast.expr)]
    read = [definition(source, one) if isinstance(one, ast.Name) else one for one in named]
    shuffled = [one for one in loaders if argument(one, "shuffle") is not None]
    for found in ([one for one in loaders if one in read], loaders, shuffled):
        if len(found) == 1:
            yield (keyword(source, found[0], "drop_last", "True"),)
            return


def rate_of(call: ast.AST | None) -> ast.expr | None:
    """The learning rate that an optimizer is given."""
    return argument(call, "lr", 1)


def through_scaler(culprit: Culprit) -> Iterator[Candidate]:
    """`scaler.step(optimizer)` for `optimizer.step()`, where a GradScaler scales the loss and
    nothing divides the gradients by its scale again."""
    source = culprit.source
    for made in culprit.calls(_SCALERS):
        name = target_of(culprit, made) or ""
        used = {method for method in ("scale", "step", "unscale_") if _calls(culprit, name, method)}
        for call, step in steps(culprit) if used == {"scale"} else ():
            if isinstance(source.parents[step], ast.Expr):
                yield _stepped(culprit, step, name, target_of(culprit, call) or "")


def past_scaler(culprit: Culprit, request: ask.StepThroughScaler) -> Iterator[Candidate]:
    """The same of the one step that went past it, also where the scaler takes others."""
    match culprit.call:
        case ast.Call(func=ast.Attribute(optimizer, "step")) as step:
            for made in culprit.calls(_SCALERS):
                name = target_of(culprit, made) or ""
                yield _stepped(culprit, step, name, culprit.source.of(optimizer))
        case _:
            yield from through_scaler(culprit)


def scaled_too(culprit: Culprit, request: ask.ScaleThisLoss) -> Iterator[Edits]:
    """`scaler.scale(loss).backward()` for `loss.backward()`."""
    match culprit.call:
        case ast.Call(func=ast.Attribute(loss, "backward")):
            for name in filter(None, (target_of(culprit, one) for one in culprit.calls(_SCALERS))):
                yield (culprit.replace(loss, f"{name}.scale({culprit.source.of(loss)})"),)


def _stepped(culprit: Culprit, step: ast.expr, scaler: str, optimizer: str) -> Candidate:
    text, source = f"{scaler}.step({optimizer})", culprit.source
    if not _calls(culprit, scaler, "update"):
        text += f"{source.newline}{source.indent(step.lineno)}{scaler}.update()"
    title = "step through the scaler, which divides the gradients by its scale"
    return Candidate(title, (source.replaced(step, text),))


def scaled(culprit: Culprit, request: ask.ScaleLoss) -> Iterator[Candidate]:
    """Step through the scaler that scales the loss; else scale it before backward and the gradients
    back before the step, as GradScaler does."""
    yield from through_scaler(culprit)
    backwards = defaultdict(list)
    for call in sorted(_calls(culprit, None, "backward"), key=lambda call: call.lineno):
        backwards[culprit.source.nodes.function(call)].append(call)
    for made, step in steps(culprit):
        name = target_of(culprit, made)
        here = backwards[culprit.source.nodes.function(step)]
        before_it = bisect_left(here, step.lineno, key=lambda call: call.lineno)
        if not before_it:
            continue
        receiver = here[before_it - 1].func.value  # type: ignore[attr-defined]
        unscale = (
            f"for group in {name}.param_groups:",
            '    for parameter in group["params"]:',
            "        if parameter.grad is not None:",
            f"            parameter.grad /= {LOSS_SCALE}",
        )
        edits = before(culprit.source, culprit.source.nodes.statement(step), *unscale)
        if edits:
            scale = culprit.replace(receiver, f"({culprit.text(receiver)} * {LOSS_SCALE})")
            title = f"scale the loss by {LOSS_SCALE:g} for backward, and the gradients back"
            yield Candidate(title, (scale, *edits))


def target_of(culprit: Culprit, call: ast.expr | None) -> str | None:
    """What an optimizer is called: the text that its construction is assigned to."""
    targets = targets_of(culprit.source, call) if call is not None else ()
    return next(map(culprit.source.of, targets), None)


def steps(culprit: Culprit) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Each step of an optimizer that the file makes: where it is made, and where it steps."""
    called = defaultdict(list)
    for step in _calls(culprit, None, "step"):
        called[culprit.source.of(step.func.value)].append(step)  # type: ignore[attr-defined]
    for made in optimizers(culprit):
        for step in called.get(target_of(culprit, made) or "", ()):
            yield made, step


def _calls(culprit: Culprit, name: str | None, method: str) -> list[ast.Call]:
    """The calls of a method: of what has this name, or of anything."""
    return [
        call
        for call in culprit.source.nodes.every(ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == method
        and (name is None or culprit.source.of(call.func.value) == name)
    ]


def clipped(culprit: Culprit, request: ask.ClipNorm) -> Ways:
    """Clip the total norm before every step of the optimizer; to another bound, where the finding
    is about a clipping."""

    if culprit.call is not None and called(culprit.call) == "clip_grad_norm_":
        if (old := argument(culprit.call, "max_norm", 1)) is not None:
            yield (culprit.replace(old, request.bound),)
        return
    clip = culprit.torch("torch.nn.utils.clip_grad_norm_")
    for made, step in steps(culprit):
        if not made.args or not holds(culprit.source, made.args[0], step):
            continue
        line = f"{clip}({culprit.source.of(made.args[0])}, {request.bound})"
        yield before(culprit.source, culprit.source.nodes.statement(step), line)
    for taken in culprit.finding.related:
        update = statement_at(culprit.source, taken.location)
        around = ancestors(culprit.source, update) if update is not None else ()
        loop = next((one for one in around if isinstance(one, ast.For)), None)
        given = loop.iter if loop is not None else None
        if isinstance(given, ast.Call) and called(given) == "parameters":  # an update by hand
            line = f"{clip}({culprit.source.of(given)}, {request.bound})"
            yield before(culprit.source, loop, line)


def as_list(culprit: Culprit, request: ask.KeepAsList) -> Iterator[Edits]:
    """`list(filter(...))` where the variable that is clipped is given an iterator."""
    source, call = culprit.source, culprit.call
    given = source.of(call.args[0]) if call is not None and call.args else ""
    made = [value for target, value in source.nodes.given() if source.of(target) == given]
    for value in made if len(made) == 1 else ():
        text = source.of(value)
        is_bare = isinstance(value, ast.GeneratorExp)
        yield [culprit.replace(value, f"[{text[1:-1]}]" if is_bare else f"list({text})")]


def in_time(culprit: Culprit, request: ask.MoveClipping) -> Ways:
    """The clipping before the update, or the `unscale_` before the clipping, where both are
    statements of one block."""
    source, related = culprit.source, culprit.finding.related[:1]
    other = expression(source, related[0].location) if related else None
    if culprit.node is None or not isinstance(other, ast.Call):
        return
    clip, call = map(source.nodes.statement, (culprit.node, other))
    if request.summed and clip is not call:
        yield moved_before(source, clip, call)
        return
    if clip is call or source.parents[clip] is not source.parents[call]:
        return
    if not request.unscale:
        yield (*_unscaled(source, other, call), *moved_before(source, clip, call))
    elif called(other) == "unscale_":
        yield moved_before(source, call, clip)
    else:
        yield _unscaled(source, other, clip)


def _unscaled(source: Source, step: ast.Call, place: ast.stmt) -> Edits:
    """`scaler.unscale_(optimizer)` before a statement, for `scaler.step(optimizer)`."""
    if called(step) != "step" or not step.args or not isinstance(step.func, ast.Attribute):
        return ()  # no GradScaler's
    line = f"{source.of(step.func.value)}.unscale_({source.of(step.args[0])})"
    calls = parts(source.nodes.function(step), ast.Call)
    written = {source.of(one) for one in calls if called(one) == "unscale_"}
    return before(source, place, line) if line not in written else ()


def copied(culprit: Culprit, request: ask.CopyState) -> Ways:
    """`copy.deepcopy(net.state_dict())`, or clones where the file does not import `copy`; in the
    place of a copy of the dictionary alone. In `{k: v for k, v in ...}` a clone of each."""
    call = culprit.call
    if call is None or called(call) != "state_dict":
        return
    around = next((a for a in ancestors(culprit.source, call) if isinstance(a, ast.DictComp)), None)
    if around is not None and isinstance(around.value, ast.Name):
        yield (culprit.replace(around.value, f"{around.value.id}.clone()"),)
        return
    of, whole = culprit.source.of, culprit.source.parents[culprit.source.parents[call]]
    is_shallow = isinstance(whole, ast.Call) and called(whole) == "copy" and not whole.args
    deepcopy = culprit.names.spell("copy.deepcopy")
    text = f"{{name: value.clone() for name, value in {of(call)}.items()}}"
    if deepcopy is not None:
        text = f"{deepcopy}({of(call)})"
    yield (culprit.replace(whole if is_shallow and isinstance(whole, ast.expr) else call, text),)


def swapped(culprit: Culprit, request: ask.LoadOtherWay) -> Ways:
    """`a.load_state_dict(b.state_dict())` with `a` and `b` in each other's place."""
    match culprit.call:
        case ast.Call(
            func=ast.Attribute(value=into, attr="load_state_dict"),
            args=[ast.Call(func=ast.Attribute(value=of, attr="state_dict")), *_],
        ):
            texts = map(culprit.text, (of, into))
            yield tuple(culprit.replace(a, b) for a, b in zip((into, of), texts, strict=True))


def taken_elsewhere(culprit: Culprit, request: ask.LoadStateOf) -> Ways:
    """`a.load_state_dict(b.state_dict())` for a state of its own."""
    match culprit.call:
        case ast.Call(args=[ast.Call(func=ast.Attribute(value=of, attr="state_dict")), *_]):
            yield (culprit.replace(of, request.other),)
