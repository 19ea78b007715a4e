"""A softmax over the groups that an index makes, written by hand: each group's largest score is
taken away before the exponential, which changes no quotient."""

import ast
from collections.abc import Iterator

from gradscope.dataclass import dataclass
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.spelling import can_repeat
from gradscope.repair.write.splice import before
from gradscope.repair.write.uses import Uses
from gradscope.source import definition
from gradscope.source.arguments import Spelled, arguments_of, spelled
from gradscope.source.tree import names_in

_SUMS = frozenset(("index_add", "scatter_add"))
_NAMES = ("largest", "largest_score")


def shifted(culprit: Culprit) -> Iterator[Candidate]:
    """`exp(e - largest[index])` for `exp(e)` that `zeros.index_add(0, index, exp(e))` sums up."""
    source, made = culprit.source, _exponential(culprit)
    scores = spelled(source, made).first
    if made is None or scores is None:
        return
    statement = source.nodes.statement(made)
    name = next(source.free(_NAMES), None)
    where = source.nodes.function(made)
    for call in source.nodes.every(ast.Call):
        is_here = source.nodes.function(call) is where
        total = _total(culprit, call, made, scores) if is_here else None
        if total is None or not can_repeat(culprit, scores):
            continue
        e = culprit.text(scores)
        along, by = total.dim, source.of(total.index)
        shapes = (one.shape for one in culprit.finding.tensors if one.role == "self")
        is_flat = total.is_expanded or len(next(shapes, ())) == 1
        reduce = "scatter_reduce" if is_flat else "index_reduce"
        filled = culprit.torch(f'torch.full_like({total.zeros}, float("-inf"))')
        read = f"gather({along}, {by})" if is_flat else f"index_select({along}, {by})"
        if name is None:
            return
        line = f'{name} = {filled}.{reduce}({along}, {by}, {e}.detach(), "amax")'
        edit = culprit.replace(scores, f"{e} - {name}.{read}")
        if lines := before(source, statement, line):
            title = "take each group's largest value away before `exp`: the quotients stay"
            yield Candidate(title, (*lines, edit), "stable-op")
        return


@dataclass(frozen=True, slots=True)
class _Total:
    """A sum over the groups of an index; `zeros`: the text of a tensor of its shape.
    `is_expanded`: the index has the shape of what is summed."""

    zeros: str
    dim: str
    index: ast.expr
    is_expanded: bool


def _total(culprit: Culprit, call: ast.Call, made: ast.expr, scores: ast.expr) -> _Total | None:
    """What a call sums `made` up by: an op of torch's, or a function of the program around it."""
    source, added = culprit.source, _sum(culprit, call)
    if added is not None:
        into, dim, index, what = added.positional
        zeros = definition(source, into) if isinstance(into, ast.Name) else into
        if zeros is None or not can_repeat(culprit, zeros) or not _is(culprit, what, made):
            return None
        return _Total(source.of(zeros), source.of(dim), index, added.name == "scatter_add")
    function = Uses(source).callee(call)
    given = {} if function is None else arguments_of(function, call)
    values = next((name for name, one in given.items() if _is(culprit, one, made)), None)
    if function is None or values is None:
        return None
    if not all(can_repeat(culprit, one) for name, one in given.items() if name != values):
        return None
    for inner in source.nodes.every(ast.Call):
        added = _sum(culprit, inner) if source.nodes.function(inner) is function else None
        if added is not None and values in names_in(added.positional[3]):
            _, dim, index, _ = added.positional
            by = [given[name] for name in names_in(index) & {*given} - {values}]
            if len(by) == 1 and not names_in(dim):
                start = source.written(call, {given[values]: culprit.text(scores)})
                return _Total(start, source.of(dim), by[0], False)
    return None


def _sum(culprit: Culprit, call: ast.Call) -> Spelled | None:
    found = spelled(culprit.source, call)
    is_sum = found.name in _SUMS and len(found.positional) == 4
    return found if is_sum else None


def _exponential(culprit: Culprit) -> ast.expr | None:
    """The culprit, or what is divided there: all of a group may have been flushed to 0."""
    node = culprit.operands.get("self") if culprit.finding.op == "div" else culprit.node
    given = definition(culprit.source, node) if isinstance(node, ast.Name) else node
    is_exp = spelled(culprit.source, given).name == "exp"
    return given if is_exp and isinstance(given, ast.expr) else None


def _is(culprit: Culprit, node: ast.expr, made: ast.AST) -> bool:
    given = definition(culprit.source, node) if isinstance(node, ast.Name) else node
    return given is made
