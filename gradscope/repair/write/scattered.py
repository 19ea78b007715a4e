"""A softmax over the groups that an index makes, written by hand: each group's largest score is
taken away before the exponential, which changes no quotient."""

import ast
from collections.abc import Iterator

from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.spelling import can_repeat
from gradscope.repair.write.splice import before
from gradscope.source import definition
from gradscope.source.arguments import spelled

_SUMS = frozenset(("index_add", "scatter_add"))
_NAMES = ("largest", "largest_score")


def shifted(culprit: Culprit) -> Iterator[Candidate]:
    """`exp(e - largest[index])` for `exp(e)` that `zeros.index_add(0, index, exp(e))` sums up."""
    source, made = culprit.source, _exponential(culprit)
    found = spelled(source, made) if made is not None else None
    statement = source.nodes.statement(made) if made is not None else None
    if made is None or found is None or not found.positional:
        return
    scores = found.positional[0]
    taken = {name.id for name in source.nodes.every(ast.Name)}
    name = next((one for one in _NAMES if one not in taken), None)
    where = source.nodes.function(made)
    for call in source.nodes.every(ast.Call):
        added = spelled(source, call)
        if added is None or added.name not in _SUMS or len(added.positional) != 4:
            continue
        start, dim, index, what = added.positional
        is_here = source.nodes.function(call) is where and _is(culprit, what, made)
        zeros = definition(source, start) if isinstance(start, ast.Name) else start
        if not is_here or zeros is None or not all(can_repeat(culprit, x) for x in (zeros, scores)):
            continue
        first, by, e = source.of(zeros), source.of(index), culprit.text(scores)
        along = source.of(dim)
        is_flat = added.name == "scatter_add" or _dims(culprit) == 1
        reduce = "scatter_reduce" if is_flat else "index_reduce"
        filled = culprit.torch(f'torch.full_like({first}, float("-inf"))')
        read = f"gather({along}, {by})" if is_flat else f"index_select({along}, {by})"
        if filled is None or name is None:
            return
        line = f'{name} = {filled}.{reduce}({along}, {by}, {e}.detach(), "amax")'
        edit = culprit.replace(scores, f"{e} - {name}.{read}")
        lines = before(source, statement, line)
        if lines:
            title = "take each group's largest value away before `exp`: the quotients stay"
            yield Candidate(title, (*lines, edit), "stable-op")
        return


def _exponential(culprit: Culprit) -> ast.expr | None:
    """The culprit, or what is divided there: all of a group may have been flushed to 0."""
    node = culprit.operands.get("self") if culprit.finding.op == "div" else culprit.node
    given = definition(culprit.source, node) if isinstance(node, ast.Name) else node
    found = spelled(culprit.source, given) if given is not None else None
    is_exp = found is not None and found.name == "exp"
    return given if is_exp and isinstance(given, ast.expr) else None


def _is(culprit: Culprit, node: ast.expr, made: ast.AST) -> bool:
    given = definition(culprit.source, node) if isinstance(node, ast.Name) else node
    return given is made


def _dims(culprit: Culprit) -> int | None:
    return next((len(one.shape) for one in culprit.finding.tensors if one.role == "self"), None)
