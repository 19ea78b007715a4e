"""A recurrence of products, kept in logarithms from its start to its end; and a softmax over the
groups that an index makes, whose scores are shifted.

Sinkhorn's scaling vectors, the forward variable of a hidden Markov model, a likelihood that each
step multiplies: all leave the dtype after some steps, while their logarithms stay small.
"""

import ast
from collections.abc import Iterator

from gradscope.dataclass import dataclass
from gradscope.repair.write.culprit import MOVES, Candidate, Culprit, can_repeat
from gradscope.repair.write.logs import log_of, scaling
from gradscope.repair.write.reading import Reading, Rebound
from gradscope.repair.write.splice import before
from gradscope.repair.write.uses import Uses
from gradscope.rules.wording import proposals
from gradscope.source import definition
from gradscope.source.arguments import Spelled, arguments_of, spelled
from gradscope.source.scopes import Scope
from gradscope.source.spans import ancestors
from gradscope.source.tree import names_in, parts

_LOOPS = ast.For | ast.While
MOST = 8  # places that give a name of a recurrence a value
_PRODUCTS = MOVES | {"div", "mm", "mul", "sum"}


def in_logarithms(culprit: Culprit) -> Iterator[Candidate]:
    """Every line that gives such a name a value, or reads it: with what it is multiplied by as a
    vector, then as a matrix, then as a batch of these."""
    if not isinstance(culprit.node, ast.expr):
        return
    scope = culprit.source.nodes.scope(culprit.node).function
    for rank in (1, 2, 3):
        carried, apart = _carried(culprit, scope), frozenset[ast.expr]()
        while carried and not culprit.search.is_over:
            read = Reading(culprit, culprit.node, True, apart=apart, carried=carried, rank=rank)
            try:
                _rewrite(read, scope)
            except NoProduct as none:
                carried -= {*none.args}
                continue
            except Rebound:
                break
            if misread := read.misread():
                apart |= {*misread}
                continue
            names = " and ".join(f"`{name}`" for name in sorted(carried))
            title = proposals.RECURRENCE.format(names=names)
            yield Candidate(title, tuple(read.edits() or ()))
            break


class NoProduct(Exception):
    """What a name is given, or used for, has no logarithm that is known."""


def _carried(culprit: Culprit, scope: Scope) -> frozenset[str]:
    """The names of the culprit's statement that a loop gives values made of their own, or of each
    other's."""
    found = set[str]()
    assert culprit.node is not None
    waiting = 2 * _names(culprit.source.nodes.statement(culprit.node))
    while waiting:
        name = waiting.pop()
        made = scope.bindings.get(name, ())
        if name in found or not 0 < len(made) <= MOST:
            continue
        read = [other for one in made if one.value for other in _names(one.value)]
        is_plain = all(one.value is not None for one in made)
        around = (ancestors(culprit.source, one.statement) for one in made)
        in_loop = [any(isinstance(each, _LOOPS) for each in one) for one in around]
        if not is_plain or not any(in_loop):
            continue
        if not all(in_loop) or not found.isdisjoint(read):
            found.add(name)
            waiting += read
    return frozenset(found)


def _names(node: ast.AST) -> list[str]:
    return [one.id for one in parts(node, ast.Name)]


def _rewrite(read: Reading, scope: Scope) -> None:
    """Gathers all that is to be rewritten, or raises NoProduct."""
    inside: set[ast.AST] = set()
    for name in sorted(read.carried):
        values = [one.value for one in scope.bindings[name] if one.value is not None]
        if read.carried.isdisjoint(other for value in values for other in _names(value)):
            raise NoProduct(name)  # no recurrence, now that what it was made of is none
        for value in values:
            read.place = value
            text = log_of(read, value)
            if text is None and read.carried.isdisjoint(_names(value)):
                text = read.log(value)
            if text is None:
                raise NoProduct(name)
            read.rewritten[value] = text
            inside |= {*ast.walk(value)}
    for name in sorted(read.carried):
        for node in scope.reads.get(name, ()):
            if node not in inside and not _used(read, node):
                raise NoProduct(name)


def _used(read: Reading, node: ast.expr) -> bool:
    """What reads the name gets its value back, where it does not take the logarithm of that."""
    source, whole = read.culprit.source, node
    read.place = node
    while True:
        above = source.parents[whole]
        while isinstance(above, ast.Attribute):
            above = source.parents[above]
        found = spelled(source, above)
        is_log = found.name == "log"
        if not isinstance(above, ast.expr) or not (is_log or _is_product(read, above, whole)):
            break
        whole = above
        if is_log:
            break
    if isinstance(getattr(whole, "ctx", None), ast.Store):
        return False  # `alpha[0] = ...`
    if whole in read.rewritten:
        return True
    read.place = whole
    inner = found.positional[0] if is_log else whole
    text = log_of(read, inner)
    if text is not None:
        read.rewritten[whole] = text if is_log else f"torch.exp({text})"
    return text is not None


def _is_product(read: Reading, above: ast.expr, node: ast.expr) -> bool:
    """Of the node and of others whose logarithm is known."""
    if isinstance(above, ast.Subscript):
        return above.value is node
    found = spelled(read.culprit.source, above)
    if found.name not in _PRODUCTS:
        return False
    if found.name in MOVES or found.name == "sum":
        return found.positional[0] is node
    others = (one for one in found.positional if one is not node)
    return node in found.positional and all(
        log_of(read, one) is not None or scaling(read, one) is not None for one in others
    )


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
