"""What an op that raised takes instead."""

from __future__ import annotations

import ast

from gradscope.facts import requests as ask
from gradscope.repair.write.candidate import Ways
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.spelling import can_repeat, operand_of
from gradscope.repair.write.splice import keyword


def diagonal(culprit: Culprit, request: ask.AddToDiagonal) -> Ways:
    """A multiple of the identity added to the matrix."""
    edge = next((one for one in culprit.edges() if one.cure.guard), None)
    node = operand_of(culprit, edge) if edge is not None else None
    guard = culprit.torch(edge.cure.guard) if edge is not None else None
    if node is not None and guard and can_repeat(culprit, node):
        text = guard.format(x=culprit.text(node), eps=f"{request.size:g}")
        yield [culprit.replace(node, text)]


def fitted(culprit: Culprit, request: ask.FitNumber) -> Ways:
    """The end of the dtype's range in the place of the number."""
    number, tensor = culprit.operands.get(request.unfit.role), culprit.operands.get("self")
    end = "max" if request.unfit.value > 0 else "min"
    made = culprit.torch("torch.finfo(")
    if number is not None and tensor is not None and made and can_repeat(culprit, tensor):
        yield [culprit.replace(number, f"{made}{culprit.text(tensor)}.dtype).{end}")]


def ignored(culprit: Culprit, request: ask.IgnoreTarget) -> Ways:
    """The argument that leaves targets out."""
    if isinstance(culprit.node, ast.Call):
        yield [keyword(culprit.source, culprit.node, "ignore_index", str(request.value))]
