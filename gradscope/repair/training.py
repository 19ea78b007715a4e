"""Repairs of the training, not of the loss: the optimizer's arguments, clipping, wider dtypes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.ops.dtypes import Margin, eps_for
from gradscope.repair.candidate import Candidate
from gradscope.repair.culprit import Culprit
from gradscope.repair.splice import before, keyword
from gradscope.rules import phrases
from gradscope.source.masks import definition, in_reach
from gradscope.source.operands import spelled
from gradscope.source.spans import expression, scope, statement

RATES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)  # of the learning rate that diverged
LOSS_SCALE = 65536.0  # GradScaler's own first scale
TENSORS = frozenset(
    "self other mat1 mat2 tensor1 tensor2 x1 x2 target weight query key value".split()
)


def optimizers(culprit: Culprit) -> list[ast.Call]:
    """The calls of the file that construct an optimizer of torch."""
    return [
        node
        for node in ast.walk(culprit.source.tree)
        if isinstance(node, ast.Call)
        and (culprit.names.dotted(node.func) or "").startswith("torch.optim.")
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
    if culprit.finding.name == "inf-arithmetic":
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


def clipped(culprit: Culprit) -> Iterator[Candidate]:
    """Clip the total norm before every step of the optimizer."""
    clip = culprit.torch("torch.nn.utils.clip_grad_norm_")
    for call in optimizers(culprit):
        if clip is None or not call.args:
            continue
        parameters = call.args[0]
        for step in _steps(culprit, call):
            if in_reach(culprit.source, parameters, parameters) and _shares(culprit, call, step):
                bound = _bound(culprit)
                line = f"{clip}({culprit.source.of(parameters)}, {bound})"
                edit = before(culprit.source, statement(culprit.source, step), line)
                if edit is not None:
                    title = f"clip the total gradient norm to {bound} before each step"
                    yield Candidate("clip-norm", title, (edit,))


def _bound(culprit: Culprit) -> str:
    """The largest norm that the rule found healthy, from the code that it proposes."""
    codes = (fix.code for fix in culprit.finding.fixes if fix.kind == "clip-norm")
    found = (re.search(r"max_norm=([\d.e+-]+)", code) for code in codes)
    return next((match[1] for match in found if match), "1.0")


def through_scaler(culprit: Culprit) -> Iterator[Candidate]:
    """`scaler.step(optimizer)` for `optimizer.step()`, where a GradScaler scales the loss and
    nothing divides the gradients by its scale again."""
    calls = [node for node in ast.walk(culprit.source.tree) if isinstance(node, ast.Call)]
    used = {culprit.source.of(call.func) for call in calls}
    for made in calls:
        name = _target(culprit, made) if _is_scaler(culprit, made) else None
        if f"{name}.scale" not in used or used & {f"{name}.step", f"{name}.unscale_"}:
            continue
        for call in optimizers(culprit):
            optimizer = _target(culprit, call)
            for step in _steps(culprit, call):
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
        name = _target(culprit, call)
        for step in _steps(culprit, call):
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
            edit = before(culprit.source, statement(culprit.source, step), *unscale)
            if edit is not None:
                scale = culprit.replace(receiver, f"({culprit.text(receiver)} * {LOSS_SCALE})")
                title = f"scale the loss by {LOSS_SCALE:g} for backward, and the gradients back"
                yield Candidate("loss-scaling", title, (scale, edit))


def widened(culprit: Culprit) -> Iterator[Candidate]:
    """A wider dtype for all that the culprit's function is given, else for its operands alone:
    where one sum over half numbers overflows, the next one is close."""
    wide, method = ("float64", "double()") if culprit.dtype == "float32" else ("float32", "float()")
    tensors = [
        node
        for role, node in culprit.operands.items()
        if role in TENSORS and not isinstance(node, ast.Constant)
    ]
    read = {part.id for node in tensors for part in ast.walk(node) if isinstance(part, ast.Name)}
    edit = _rebound(culprit, read, method)
    if edit is not None:
        yield Candidate("dtype", f"compute what follows in {wide}", (edit,))
    for node in tensors[:1]:
        meaning = definition(culprit.source, node) if isinstance(node, ast.Name) else None
        if meaning is not None and scope(culprit.source, meaning) is not culprit.source.tree:
            text = f"{culprit.text(meaning)}.{method}"
            edit = culprit.replace(meaning, text)
            yield Candidate("dtype", f"compute what follows in {wide}", (edit,))
    for chosen in (tensors[:1], tensors):
        if chosen:
            edits = (culprit.replace(node, f"{culprit.text(node)}.{method}") for node in chosen)
            title = f"compute `{phrases.spelled(culprit.finding.op)}` in {wide}"
            yield Candidate("dtype", title, tuple(edits))
    yield from _widened_before(culprit, wide, method)
    if culprit.dtype == "float16":
        yield from _bfloat16(culprit)


def _widened_before(culprit: Culprit, wide: str, method: str) -> Iterator[Candidate]:
    """A wider dtype where the operand was flushed to 0, which is before the culprit reads it."""
    for related in culprit.finding.related:
        if related.role != "birth" or related.location.file != culprit.source.file:
            continue
        node = expression(culprit.source, related.location)
        found = spelled(culprit.source, node) if node is not None else None
        if found is not None and found.positional:
            first = found.positional[0]
            edit = culprit.replace(first, f"{culprit.text(first)}.{method}")
            yield Candidate("dtype", f"compute `{found.name}` in {wide}", (edit,))


def _bfloat16(culprit: Culprit) -> Iterator[Candidate]:
    """bfloat16 wherever the file says float16: as small, with the range of float32."""
    edits = []
    for node in ast.walk(culprit.source.tree):
        if not isinstance(node, ast.Attribute):
            continue
        end = culprit.source.extent(node)[1]
        if culprit.names.dotted(node) in ("torch.float16", "torch.half"):
            edits.append(culprit.source.edit(end - len(node.attr), end, "bfloat16"))
        elif node.attr == "half" and isinstance(culprit.source.parents.get(node), ast.Call):
            edits.append(culprit.source.edit(end - len("half"), end, "bfloat16"))
    if edits:
        yield Candidate("dtype", "use bfloat16, which has the range of float32", tuple(edits))


def _rebound(culprit: Culprit, read: set[str], method: str) -> Edit | None:
    """A line at the top of the function that widens the parameters which the culprit reads."""
    if culprit.node is None:
        return None
    where = scope(culprit.source, culprit.node)
    if not isinstance(where, ast.FunctionDef):
        return None
    names = [one.arg for one in where.args.args if one.arg in read and one.arg != "self"]
    first = where.body[ast.get_docstring(where) is not None :][:1]
    if not names or not first:
        return None
    values = ", ".join(f"{name}.{method}" for name in names)
    return before(culprit.source, first[0], f"{', '.join(names)} = {values}")


def _target(culprit: Culprit, call: ast.Call) -> str | None:
    """What an optimizer is called: the text that its construction is assigned to."""
    made = culprit.source.parents.get(call)
    return culprit.source.of(made.targets[0]) if isinstance(made, ast.Assign) else None


def _steps(culprit: Culprit, call: ast.Call) -> Iterator[ast.Call]:
    name = _target(culprit, call)
    for node in ast.walk(culprit.source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "step" and culprit.source.of(node.func.value) == name:
                yield node


def _shares(culprit: Culprit, call: ast.Call, step: ast.Call) -> bool:
    return scope(culprit.source, call) is scope(culprit.source, step)


def _backward(culprit: Culprit, step: ast.Call) -> ast.Call | None:
    """The last `loss.backward()` before a step in the same function."""
    found = [
        node
        for node in ast.walk(scope(culprit.source, step))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and node.lineno < step.lineno
    ]
    return max(found, key=lambda node: node.lineno, default=None)
