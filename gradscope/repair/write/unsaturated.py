"""A loss that is flat where a probability is low, put into the one that is steep there."""

import ast
from collections.abc import Iterator
from functools import partial

from gradscope.facts import Flat
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.forms import in_form
from gradscope.repair.write.reading import Reading, atom
from gradscope.repair.write.stable import above
from gradscope.source.arguments import spelled

_FAR = 32  # expressions from the culprit to the loss that it is a part of
_NEGATED = {"softplus(z)": "-torch.nn.functional.softplus(-{z:atom})"}
_LOSSES = {
    "log(1 - sigmoid(z))": "-torch.nn.functional.logsigmoid({z})",
    "log(1 - sigmoid(z) + eps)": "-torch.nn.functional.logsigmoid({z})",
    "log(1 - p)": "-torch.log({p:atom})",
    "log(1 - p + eps)": "-torch.log({p:atom} + {eps})",
    "logsigmoid(-z)": "-torch.nn.functional.logsigmoid({z})",
}


def opposite(culprit: Culprit, request: ask.Unsaturated) -> Ways:
    """`-logsigmoid(z)` for `log(1 - sigmoid(z))`, `-log(p)` for `log(1 - p)`, and `f(p, 1 - y)` for
    `-f(p, y)`, wherever the culprit, or a call that led to it, is a part of one of these."""
    for node in _parts_of(culprit, request.flat):
        raised = partial(_raised, negated=_is_negated(culprit, node))
        template = Reading(culprit, node).form(raised, node)
        if template is not None:
            yield (culprit.replace(node, culprit.torch(template)),)


def _parts_of(culprit: Culprit, flat: Flat) -> Iterator[ast.expr]:
    """The expressions that it is in, also by the names for them, the innermost first; then those
    that use it elsewhere."""
    calls = flat.call, *flat.uses
    starts = [culprit.node, *(culprit.at(one) for call in calls for one in call.frames)]
    waiting: list[ast.AST] = [one for one in starts if one is not None]
    seen: set[ast.AST] = set()
    while waiting and len(seen) < _FAR:
        node = waiting.pop(0)
        if node not in seen and isinstance(node, ast.expr):
            seen.add(node)
            waiting += above(culprit, node)
            yield node


def _raised(read: Reading, node: ast.expr, *, negated: bool) -> str | None:
    """What is steep where `node` is flat, which goes into the loss `negated` or not; None where it
    is no such loss."""
    found = spelled(read.culprit.source, node)
    if found.name == "neg" and isinstance(loss := found.first, ast.Call) and not negated:
        if len(loss.args) > 1:
            return _of_label(read, loss)
    return in_form(read, _NEGATED if negated else _LOSSES, node)


def _of_label(read: Reading, call: ast.Call) -> str:
    """A loss of the same kind with the opposite of its second argument, the label."""
    label = call.args[1]
    return read.culprit.source.written(call, {label: f"1 - {atom(read.text(label))}"})


def _is_negated(culprit: Culprit, node: ast.expr) -> bool:
    """Whether it goes into its statement with the other sign."""
    negated = False
    source, parent = culprit.source, culprit.source.parents.get(node)
    while isinstance(parent, ast.expr):
        is_minus = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub)
        is_taken = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Sub)
        negated ^= is_minus or (is_taken and getattr(parent, "right", None) is node)
        node, parent = parent, source.parents.get(parent)
    return negated
