"""Graphs that end too early: the expression that cuts one, without the cut."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradscope.repair.candidate import Candidate
from gradscope.repair.culprit import Culprit
from gradscope.repair.spelling import can_repeat
from gradscope.source.operands import spelled
from gradscope.source.spans import ancestors

PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
GUARDS = frozenset({"torch.no_grad", "torch.inference_mode"})


def reconnected(culprit: Culprit) -> Iterator[Candidate]:
    """By the reason that the finding gives."""
    match culprit.finding.evidence.get("reason"):
        case "zero-op":
            yield from _straight_through(culprit)
        case "number":
            yield from _kept_as_tensor(culprit)
        case "rewrapped":
            yield from _unwrapped(culprit)
        case "no_grad":
            yield from _enabled(culprit)


def _straight_through(culprit: Culprit) -> Iterator[Candidate]:
    node = culprit.node
    found = spelled(culprit.source, node) if node else None
    x = culprit.operands.get("self") or (
        found.positional[0] if found and found.positional else None
    )
    if not isinstance(node, ast.Call) or x is None or not can_repeat(culprit, x):
        return
    rounded = f"({culprit.source.of(node)} - {culprit.text(x)}).detach()"
    edit = culprit.replace(node, f"{culprit.source.of(x)} + {rounded}")
    yield Candidate("graph", "pass the gradient straight through", (edit,))


def _kept_as_tensor(culprit: Culprit) -> Iterator[Candidate]:
    """`torch.stack(losses)` for `torch.tensor(losses)`, `loss` for `loss.item()`."""
    call = culprit.node
    if not isinstance(call, ast.Call):
        return
    stack = culprit.torch("torch.stack(")
    if culprit.names.dotted(call.func) == "torch.tensor" and call.args and stack is not None:
        edit = culprit.replace(call, f"{stack}{culprit.source.of(call.args[0])})")
        yield Candidate("graph", "stack the tensors: `torch.tensor` copies their numbers", (edit,))
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "item":
        edit = culprit.replace(call, culprit.source.of(call.func.value))
        yield Candidate("graph", "keep the tensor, without `.item()`", (edit,))


def _unwrapped(culprit: Culprit) -> Iterator[Candidate]:
    around = ancestors(culprit.source, culprit.node) if culprit.node else iter(())
    for call in around:
        if isinstance(call, ast.Call) and culprit.names.dotted(call.func) in PARAMETERS:
            edit = culprit.replace(call, culprit.source.of(call.args[0]))
            yield Candidate("graph", "use the computed value as it is", (edit,))
            return


def _enabled(culprit: Culprit) -> Iterator[Candidate]:
    """`with torch.enable_grad():`, and the same for a decorator."""
    guard, enabled = culprit.node, culprit.torch("torch.enable_grad()")
    if isinstance(guard, ast.Call) and enabled is not None:
        if culprit.names.dotted(guard.func) in GUARDS:
            edit = culprit.replace(guard, enabled)
            yield Candidate("graph", "record the graph of what has to learn", (edit,))
