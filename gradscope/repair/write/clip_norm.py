"""Clipping before each step, written or moved to where it bounds the step."""

import ast

from gradscope.facts import requests as ask
from gradscope.facts import text_of
from gradscope.repair.write.culprit import Culprit, Edits, Ways
from gradscope.repair.write.splice import before, moved_before
from gradscope.repair.write.training import steps
from gradscope.source import Source, expression, holds


def clipped(culprit: Culprit, request: ask.ClipNorm) -> Ways:
    """Clip the total norm before every step of the optimizer."""
    bound = "1.0" if request.max_norm is None else text_of(request.max_norm, 3)
    clip = culprit.torch("torch.nn.utils.clip_grad_norm_")
    for made, step in steps(culprit):
        if clip is None or not made.args or not holds(culprit.source, made.args[0], step):
            continue
        line = f"{clip}({culprit.source.of(made.args[0])}, {bound})"
        yield before(culprit.source, culprit.source.nodes.statement(step), line)


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
    elif _method(other) == "unscale_":
        yield moved_before(source, call, clip)
    else:
        yield _unscaled(source, other, clip)


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _unscaled(source: Source, step: ast.Call, place: ast.stmt) -> Edits:
    """`scaler.unscale_(optimizer)` before a statement, for `scaler.step(optimizer)`."""
    if _method(step) != "step" or not step.args or not isinstance(step.func, ast.Attribute):
        return ()  # no GradScaler's
    line = f"{source.of(step.func.value)}.unscale_({source.of(step.args[0])})"
    written = {
        source.of(node)
        for node in ast.walk(source.nodes.function(step))
        if isinstance(node, ast.Call) and _method(node) == "unscale_"
    }
    return before(source, place, line) if line not in written else ()
