"""What an op that raised takes instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradscope.facts import Unfit
from gradscope.repair.write.candidate import Candidate
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.spelling import can_repeat, operand_of
from gradscope.repair.write.splice import keyword
from gradscope.rules.wording import titles


def diagonal(culprit: Culprit, size: float) -> Iterator[Candidate]:
    """A multiple of the identity added to the matrix."""
    edge = next((one for one in culprit.edges() if one.cure.guard), None)
    node = operand_of(culprit, edge) if edge is not None else None
    guard = culprit.torch(edge.cure.guard) if edge is not None else None
    if node is not None and guard and can_repeat(culprit, node):
        text = guard.format(x=culprit.text(node), eps=f"{size:g}")
        title = titles.jitter(f"{size:g}")
        yield Candidate("epsilon", title, (culprit.replace(node, text),))


def fitted(culprit: Culprit, unfit: Unfit) -> Iterator[Candidate]:
    """The end of the dtype's range in the place of the number."""
    number, tensor = culprit.operands.get(unfit.role), culprit.operands.get("self")
    end = "max" if unfit.value > 0 else "min"
    made = culprit.torch("torch.finfo(")
    if number is not None and tensor is not None and made and can_repeat(culprit, tensor):
        text = f"{made}{culprit.text(tensor)}.dtype).{end}"
        yield Candidate("dtype", titles.fits(unfit.dtype), (culprit.replace(number, text),))


def ignored(culprit: Culprit, value: int) -> Iterator[Candidate]:
    """The argument that leaves targets out."""
    if isinstance(culprit.node, ast.Call):
        edit = keyword(culprit.source, culprit.node, "ignore_index", str(value))
        yield Candidate("data", titles.ignored(value), (edit,))
