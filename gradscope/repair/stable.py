"""Composite expressions at the culprit, put into their stable form."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradscope.repair.candidate import Candidate
from gradscope.repair.culprit import Culprit
from gradscope.repair.forms import BESIDE, FORMS, Form
from gradscope.repair.reading import Reading
from gradscope.repair.splice import keyword
from gradscope.source.operands import canonical
from gradscope.source.spans import ancestors, scope


def rewritten(culprit: Culprit) -> Iterator[Candidate]:
    """The ways to write the culprit in a stable form, those that repair more than it first."""
    yield from leading(culprit)
    yield from _written(culprit, BESIDE)


def leading(culprit: Culprit) -> Iterator[Candidate]:
    """Every expression of the culprit's function that has a stable form and holds the culprit."""
    yield from _written(culprit, FORMS)


def _written(culprit: Culprit, forms: tuple[Form, ...]) -> Iterator[Candidate]:
    if culprit.node is None:
        return
    if canonical(culprit.finding.op) == "ctc_loss":
        yield from with_zero_infinity(culprit)
        return
    for node in _expressions(culprit):
        for form in forms:
            reading = Reading(culprit, node)
            template = form(reading, node)
            if template is None or culprit.node not in reading.seen:
                continue
            text = culprit.torch(template)
            if text is None or "\n" in text:
                continue
            title = f"compute it in one stable step: `{text}`"
            yield Candidate("stable-op", title, (culprit.replace(node, text),))
            break


def with_zero_infinity(culprit: Culprit) -> Iterator[Candidate]:
    """CTC has no alignment for a target longer than its input, and an argument that says so."""
    names = ("torch.nn.functional.ctc_loss", "torch.nn.CTCLoss")
    for node in ast.walk(culprit.source.tree):
        if isinstance(node, ast.Call) and culprit.names.dotted(node.func) in names:
            title = "let samples without any alignment count as 0"
            edit = keyword(culprit.source, node, "zero_infinity", "True")
            yield Candidate("stable-op", title, (edit,))


def _expressions(culprit: Culprit) -> list[ast.expr]:
    """The largest first, from the culprit outwards to what else its function computes."""
    assert culprit.node is not None
    around = [
        node for node in ancestors(culprit.source, culprit.node) if isinstance(node, ast.expr)
    ]
    own = [culprit.node] if isinstance(culprit.node, ast.expr) else []
    others = [
        node
        for node in ast.walk(scope(culprit.source, culprit.node))
        if isinstance(node, ast.expr) and node not in around and node is not culprit.node
    ]
    return [*reversed(around), *own, *others]
