"""Repairs of the training, not of the loss: the optimizer's arguments, the scale of the loss."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradscope.ops.dtypes import Margin, eps_for
from gradscope.repair.candidate import Candidate
from gradscope.repair.culprit import Culprit
from gradscope.repair.splice import before, keyword

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
        yield Candidate("epsilon", title, (edit,))


def lower_rate(culprit: Culprit) -> Iterator[Candidate]:
    """The largest power of ten below the learning rate that holds is found by trying."""
    if culprit.finding.name == "bad-setting":
        return  # the rate became inf while the program ran
    for call in optimizers(culprit):
        given = next((key.value for key in call.keywords if key.arg == "lr"), None)
        if given is None and len(call.args) > 1:
            given = call.args[1]
        if isinstance(given, ast.Constant) and isinstance(given.value, int | float):
            for rate in RATES:
                new = f"{given.value * rate:g}"
                title = f"lower the learning rate from {given.value:g} to {new}"
                yield Candidate("lower-lr", title, (culprit.replace(given, new),))


def through_scaler(culprit: Culprit) -> Iterator[Candidate]:
    """`scaler.step(optimizer)` for `optimizer.step()`, where a GradScaler scales the loss and
    nothing divides the gradients by its scale again."""
    calls = list(culprit.source.nodes.every(ast.Call))
    used = {culprit.source.of(call.func) for call in calls}
    for made in calls:
        name = target_of(culprit, made) if _is_scaler(culprit, made) else None
        if f"{name}.scale" not in used or used & {f"{name}.step", f"{name}.unscale_"}:
            continue
        for call in optimizers(culprit):
            optimizer = target_of(culprit, call)
            for step in steps_of(culprit, call):
                if isinstance(culprit.source.parents[step], ast.Expr):
                    indent = culprit.source.indent(step.lineno)
                    text = (
                        f"{name}.step({optimizer}){culprit.source.newline}{indent}{name}.update()"
                    )
                    start, end = culprit.source.extent(step)
                    title = "step through the scaler, which divides the gradients by its scale"
                    edit = culprit.source.edit(start, end, text)
                    yield Candidate("loss-scaling", title, (edit,))


def _is_scaler(culprit: Culprit, call: ast.Call) -> bool:
    return (culprit.names.dotted(call.func) or "").endswith(".GradScaler")


def scaled(culprit: Culprit) -> Iterator[Candidate]:
    """Scale the loss before backward and the gradients back before the step, as GradScaler does."""
    for call in optimizers(culprit):
        name = target_of(culprit, call)
        for step in steps_of(culprit, call):
            backward = _backward(culprit, step)
            receiver = backward.func.value if backward else None  # type: ignore[attr-defined]
            if name is None or receiver is None:
                continue
            unscale = (
                f"for group in {name}.param_groups:",
                '    for parameter in group["params"]:',
                "        if parameter.grad is not None:",
                f"            parameter.grad /= {LOSS_SCALE}",
            )
            edit = before(culprit.source, culprit.source.nodes.statement(step), *unscale)
            if edit is not None:
                scale = culprit.replace(receiver, f"({culprit.text(receiver)} * {LOSS_SCALE})")
                title = f"scale the loss by {LOSS_SCALE:g} for backward, and the gradients back"
                yield Candidate("loss-scaling", title, (scale, edit))


def target_of(culprit: Culprit, call: ast.Call) -> str | None:
    """What an optimizer is called: the text that its construction is assigned to."""
    made = culprit.source.parents.get(call)
    return culprit.source.of(made.targets[0]) if isinstance(made, ast.Assign) else None


def steps_of(culprit: Culprit, call: ast.Call) -> Iterator[ast.Call]:
    name = target_of(culprit, call)
    for node in culprit.source.nodes.every(ast.Call):
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "step" and culprit.source.of(node.func.value) == name:
                yield node


def _backward(culprit: Culprit, step: ast.Call) -> ast.Call | None:
    """The last `loss.backward()` before a step in the same function."""
    found = [
        node
        for node in ast.walk(culprit.source.nodes.function(step))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and node.lineno < step.lineno
    ]
    return max(found, key=lambda node: node.lineno, default=None)
