"""Repairs of the training, not of the loss: the optimizer's arguments, the scale of the loss."""

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from gradscope.ops.dtypes import Margin, eps_for
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.splice import before, keyword
from gradscope.rules.wording import proposals

RATES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)  # of the learning rate that diverged
LOSS_SCALE = 65536.0  # GradScaler's own first scale


def optimizers(culprit: Culprit) -> list[ast.Call]:
    """The calls of the file that construct an optimizer of torch."""
    return [
        node
        for node in culprit.source.nodes.every(ast.Call)
        if (culprit.names.dotted(node.func) or "").startswith("torch.optim.")
        and not (culprit.names.dotted(node.func) or "").startswith("torch.optim.lr_scheduler")
    ]


def optimizer_eps(culprit: Culprit) -> Iterator[Candidate]:
    """An eps that the parameters' dtype can hold next to a squared gradient that underflows."""
    eps = f"{eps_for(culprit.dtype, Margin.DENOMINATOR):g}"
    for call in optimizers(culprit):
        edit = keyword(culprit.source, call, "eps", eps)
        title = f"give the optimizer an eps that {culprit.dtype} can hold"
        yield Candidate(title, (edit,))


def rates(culprit: Culprit) -> Iterator[Candidate]:
    """The largest power of ten below the learning rate that holds is found by trying."""
    for call in optimizers(culprit):
        given = next((key.value for key in call.keywords if key.arg == "lr"), None)
        if given is None and len(call.args) > 1:
            given = call.args[1]
        if isinstance(given, ast.Constant) and isinstance(given.value, int | float):
            for rate in RATES:
                new = given.value * rate
                edit = culprit.replace(given, f"{new:g}")
                yield Candidate(proposals.SLOWER.format(old=given.value, new=new), (edit,))


def through_scaler(culprit: Culprit) -> Iterator[Candidate]:
    """`scaler.step(optimizer)` for `optimizer.step()`, where a GradScaler scales the loss and
    nothing divides the gradients by its scale again."""
    source = culprit.source
    for made in source.nodes.every(ast.Call):
        if not (culprit.names.dotted(made.func) or "").endswith(".GradScaler"):
            continue
        name = target_of(culprit, made) or ""
        used = {method for method in ("scale", "step", "unscale_") if _calls(culprit, name, method)}
        for call, step in steps(culprit) if used == {"scale"} else ():
            if isinstance(source.parents[step], ast.Expr):
                text = f"{name}.step({target_of(culprit, call)})"
                text += f"{source.newline}{source.indent(step.lineno)}{name}.update()"
                title = "step through the scaler, which divides the gradients by its scale"
                edit = source.edit(*source.extent(step), text)
                yield Candidate(title, (edit,))


def scaled(culprit: Culprit) -> Iterator[Candidate]:
    """Scale the loss before backward and the gradients back before the step, as GradScaler does."""
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


def target_of(culprit: Culprit, call: ast.expr) -> str | None:
    """What an optimizer is called: the text that its construction is assigned to."""
    made = culprit.source.parents.get(call)
    return culprit.source.of(made.targets[0]) if isinstance(made, ast.Assign) else None


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
