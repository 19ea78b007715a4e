"""The conditions by which an optimizer's parameters are split into groups."""

import ast
import builtins
from collections.abc import Iterator, Sequence

from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit, Edits, Ways
from gradscope.repair.write.parameters import added
from gradscope.repair.write.splice import before
from gradscope.repair.write.statements import last_returned
from gradscope.repair.write.uses import given_to
from gradscope.rules.wording import proposals
from gradscope.source import Source, expression
from gradscope.source.arguments import argument, called
from gradscope.source.spans import parenthesized
from gradscope.source.tree import names_in

_INVERSE: dict[type[ast.cmpop], str] = {
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_DEEPEST = 8  # names and calls behind which a group is made: a function may call itself
_COLLECTS = ("append", "add")


def completed(culprit: Culprit, request: ask.CompleteGroups) -> Ways:
    """Of two groups, one becomes what is not in the other one: that of the larger weight decay,
    unless the other one has fewer conditions."""
    source, usage = culprit.source, request.usage
    call = expression(source, usage.scopes[0].place) if usage.scopes else None
    given = [*_groups(source, argument(call, "params", 0))]
    if len(given) == len(usage.groups) == 2:
        least, most = sorted((0, 1), key=lambda at: usage.groups[at].weight_decay)
        pair = given[most], given[least]
        for ways in (_by_comprehension, _by_branches, _by_names):
            yield from (Candidate(proposals.REST, tuple(one)) for one in ways(culprit, *pair))
    yield from added(culprit, request)


def _groups(source: Source, node: ast.expr | None) -> Iterator[ast.expr]:
    """The `params` of each group, where all are written out."""
    whole = _made(source, node)
    for one in whole.elts if isinstance(whole, ast.List | ast.Tuple) else ():
        match one:
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                named = {getattr(key, "value", None): value for key, value in pairs}
                found = named.get("params")
            case _:
                found = argument(one, "params")
        if found is not None:
            yield found


def _made(source: Source, node: ast.expr | None) -> ast.expr | None:
    """What makes the value of a name, or what a function of this file returns."""
    for _ in range(_DEEPEST):
        if isinstance(node, ast.Name | ast.Attribute):
            node = given_to(source, node)
        elif isinstance(node, ast.Call):
            functions = source.nodes.every(ast.FunctionDef)
            named = [one for one in functions if one.name == called(node)]
            node = last_returned(named[0]) if len(named) == 1 else None
    return node


def _by_comprehension(culprit: Culprit, most: ast.expr, least: ast.expr) -> Iterator[Edits]:
    """`if p.ndim >= 2`, where the other one has `if p.ndim < 2`, over the same parameters."""
    source = culprit.source
    match _made(source, most), _made(source, least):
        case (
            ast.ListComp(generators=[one]) | ast.GeneratorExp(generators=[one]),
            ast.ListComp(generators=[other]) | ast.GeneratorExp(generators=[other]),
        ):
            over = [(source.of(each.target), source.of(each.iter)) for each in (one, other)]
            # That with more conditions was chosen with more care.
            pairs = sorted(((one, other), (other, one)), key=lambda pair: len(_terms(pair[0].ifs)))
            for its, rest in pairs if over[0] == over[1] else ():
                if text := _rest(culprit, its.ifs, rest.ifs):
                    start = parenthesized(source, its.ifs[0])[0]
                    yield [source.edit(start, parenthesized(source, its.ifs[-1])[1], text)]


def _by_branches(culprit: Culprit, most: ast.expr, least: ast.expr) -> Iterator[Edits]:
    """`else:` for the `elif` that collects the one behind the `if` that collects the other, or the
    opposite condition."""
    source = culprit.source
    ones, others = _collecting(source, most), _collecting(source, least)
    if len(ones) != 1 or not others:
        return
    (one,) = ones
    start, end = source.extent(one)[0], parenthesized(source, one.test)[1]
    is_last = source.text[start:].startswith("elif") and not one.orelse
    if is_last and source.parents[one] in others:
        yield [source.edit(start, end, "else")]
    elif len(others) == 1 and (text := _rest(culprit, [one.test], [others[0].test])):
        yield [source.edit(parenthesized(source, one.test)[0], end, text)]


def _by_names(culprit: Culprit, most: ast.expr, least: ast.expr) -> Iterator[Edits]:
    """`decay |= by_name.keys() - no_decay`, before `[by_name[n] for n in sorted(decay)]`."""
    source = culprit.source
    keys = [_keys(source, one) for one in (most, least)]
    if all(keys) and keys[0][0] == keys[1][0]:
        line = f"{keys[0][1]} |= {keys[0][0]}.keys() - {keys[1][1]}"
        yield before(source, source.nodes.statement(most), line)


def _keys(source: Source, node: ast.expr) -> tuple[str, ...]:
    """A dictionary, and the names of which a group has what is under them."""
    match _made(source, node):
        case ast.ListComp(ast.Subscript(held, ast.Name(key)), [ast.comprehension() as one]):
            names = [name for name in names_in(one.iter) if not hasattr(builtins, name)]
            if names_in(one.target) == {key} and len(names) == 1:
                return source.of(held), names[0]
    return ()


def _collecting(source: Source, group: ast.expr) -> list[ast.If]:
    """The branches that put something into a list, or a set."""
    name, found = source.of(group), list[ast.If]()
    for one in source.nodes.every(ast.If):
        calls = (line.value for line in one.body if isinstance(line, ast.Expr))
        methods = [call.func for call in calls if isinstance(call, ast.Call)]
        into = [of.value for of in methods if isinstance(of, ast.Attribute) if of.attr in _COLLECTS]
        is_here = source.nodes.function(one) is source.nodes.function(group)
        found += [one] * (is_here and name in map(source.of, into))
    return found


def _rest(culprit: Culprit, own: Sequence[ast.expr], others: Sequence[ast.expr]) -> str:
    """The conditions, where what they do not share with those of another group becomes what that
    one leaves; empty where they share all."""
    ours, theirs = _terms(own), _terms(others)
    texts = [{culprit.source.of(term) for term in terms} for terms in (ours, theirs)]
    both = [culprit.text(term) for term in ours if culprit.source.of(term) in texts[1]]
    apart = [term for term in theirs if culprit.source.of(term) not in texts[0]]
    if not apart or len(both) == len(ours):
        return ""
    last = " or ".join(_negated(culprit, term) for term in apart)
    return " and ".join((*both, f"({last})" if both and len(apart) > 1 else last))


def _terms(conditions: Sequence[ast.expr]) -> list[ast.expr]:
    found = list[ast.expr]()
    for one in conditions:
        is_both = isinstance(one, ast.BoolOp) and isinstance(one.op, ast.And)
        found += one.values if isinstance(one, ast.BoolOp) and is_both else [one]
    return found


def _negated(culprit: Culprit, term: ast.expr) -> str:
    of = culprit.source.of
    match term:
        case ast.Compare(left, [op], [right]):
            return f"{of(left)} {_INVERSE[type(op)]} {of(right)}"
        case ast.UnaryOp(ast.Not(), inner):
            return culprit.text(inner)
    return f"not {culprit.text(term)}"


def left_out(culprit: Culprit, request: ask.LeaveOutOfGroup) -> Ways:
    """`[p for p in model.parameters() if all(p is not one for one in head.parameters())]`, where
    the groups are written out."""
    given = [*_groups(culprit.source, argument(culprit.call, "params", 0))]
    if len(given) > max(request.whole, request.part):
        whole, part = given[request.whole], given[request.part]
        of = culprit.source.of
        text = f"[p for p in {of(whole)} if all(p is not one for one in {of(part)})]"
        yield [culprit.source.replaced(whole, text)]
