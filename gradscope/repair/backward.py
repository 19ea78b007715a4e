"""A custom backward's return, corrected by the relation that was found between it and the truth."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradscope.repair.candidate import Candidate
from gradscope.repair.culprit import Culprit
from gradscope.source.spans import scope


def corrected(culprit: Culprit) -> Iterator[Candidate]:
    """`evidence["rewrite"]` is a template of the right expression, with `{returned}` for what the
    backward returns now and `{grad_output}` for its argument; `evidence["position"]` tells which
    of several returned gradients it is about."""
    template = culprit.finding.evidence.get("rewrite")
    if not isinstance(template, str):
        return
    returned = _returned(culprit)
    if returned is None:
        return
    node, arguments = returned
    names = {"grad_output": arguments[1] if len(arguments) > 1 else "grad_output"}
    text = template.format(returned=culprit.text(node), **names)
    title = f"return `{text}`"
    yield Candidate("backward-rewrite", title, (culprit.replace(node, text),))


def _returned(culprit: Culprit) -> tuple[ast.expr, list[str]] | None:
    """The returned expression at the finding's line, and the parameters of its backward."""
    location = culprit.finding.location
    position = culprit.finding.evidence.get("position", 0)
    if location is None or not isinstance(position, int):
        return None
    for node in ast.walk(culprit.source.tree):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        if not node.lineno <= location.line <= (node.end_lineno or node.lineno):
            continue
        where = scope(culprit.source, node)
        if not isinstance(where, ast.FunctionDef):
            return None
        value = node.value
        if isinstance(value, ast.Tuple):
            if position >= len(value.elts):
                return None
            value = value.elts[position]
        return value, [one.arg for one in where.args.args]
    return None
