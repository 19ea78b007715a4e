"""Both branches of a `where` over one value, each computed of what it is chosen for."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.ops.reach import singularity
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.reading import Reading
from gradscope.repair.write.splice import before
from gradscope.repair.write.statements import block_of
from gradscope.rules.wording import proposals
from gradscope.source import definition
from gradscope.source.arguments import spelled
from gradscope.source.tree import names_in, parts

_SEVERAL = 2  # ops of a branch that may break: one operand is not enough then
_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE
_NAMES = {True: "below", False: "above"}


def by_branch(culprit: Culprit, *, several: bool) -> Iterator[Candidate]:
    """`below = torch.where(x < 1, x, 0.5)` in front of what computes the first branch of
    `torch.where(x < 1, ...)`, which reads that for `x`; and so for the second one. For branches in
    which `several` ops may break, or one."""
    for place in culprit.related("mask"):
        found = spelled(culprit.source, place)
        if found.name != "where" or len(found.positional) != 3:
            continue
        condition, *branches = found.positional
        values = [definition(culprit.source, one) or one for one in branches]
        if several != any(_ops_that_break(culprit, one) >= _SEVERAL for one in values):
            continue
        yield Candidate(proposals.BRANCHES, _edits(culprit, condition, values), same=True)


def _ops_that_break(culprit: Culprit, value: ast.expr) -> int:
    """How many of its ops are singular somewhere, beside quotients by a literal."""
    written = [spelled(culprit.source, one) for one in ast.walk(value)]
    number = Reading(culprit, value).number
    last = ((one.name, number(one.positional[-1])) for one in written if one.positional)
    return sum(
        singularity(name, operand) is not None
        for name, operand in last
        if name != "div" or operand is None
    )


def _edits(culprit: Culprit, condition: ast.expr, values: list[ast.expr]) -> tuple[Edit, ...]:
    source = culprit.source
    if not isinstance(condition, ast.Compare) or len(condition.ops) != 1:
        return ()
    if not isinstance(condition.ops[0], _ORDERS):  # of what is equal nobody knows another number
        return ()
    left = names_in(condition.left)
    lines, edits = list[str](), list[Edit]()
    statements = [source.nodes.statement(one) for one in values]
    first = min(statements, key=lambda one: one.lineno)
    if any(one not in block_of(source, first) for one in statements):
        return ()
    for is_chosen, value in zip((True, False), values, strict=True):
        reads = [one for one in parts(value, ast.Name) if one.id in left]
        names = {one.id for one in reads}
        if len(names) != 1 or not _ops_that_break(culprit, value):
            continue
        is_below = isinstance(condition.ops[0], ast.Lt | ast.LtE) == is_chosen
        name, end = _NAMES[is_below], _beyond(culprit, condition.comparators[0], is_below)
        if end is None or not any(source.free((name,))):
            return ()
        x, asked = names.pop(), source.of(condition)
        sides = (x, end) if is_chosen else (end, x)
        lines.append(f"{name} = {culprit.torch('torch.where(')}{asked}, {', '.join(sides)})")
        edits += (source.replaced(one, name) for one in reads)
    return (*before(source, first, *lines), *edits) if lines else ()


def _beyond(culprit: Culprit, bound: ast.expr, is_below: bool) -> str | None:
    """A number well on one side of a bound: half of it, or twice it."""
    if isinstance(bound, ast.Name):  # of a small number above 0
        return f"{0.5 if is_below else 2} * {bound.id}"
    node, sign = bound, 1
    if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub):
        node, sign = bound.operand, -1
    if (number := Reading(culprit, bound).number(node)) is None:
        return None
    number *= sign
    if not number:
        return "-1.0" if is_below else "1.0"
    if 0 < number < 1 and not is_below:
        return "1.0"
    return repr(number * (0.5 if is_below == (number > 0) else 2))
