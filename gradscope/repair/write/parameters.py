"""What an optimizer is given: other parameters, by the names in sight where it is made."""

import ast
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile

from gradscope.facts import Edit, Holder
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit, Edits, Ways
from gradscope.repair.write.cycles import moved
from gradscope.repair.write.splice import commented, keyword
from gradscope.repair.write.statements import block_of
from gradscope.repair.write.uses import calls_around
from gradscope.source import Source
from gradscope.source.arguments import argument, arguments_of, called
from gradscope.source.spans import statement_at
from gradscope.source.tree import names_in, parts

_EMBEDDING = "torch.nn.Embedding"  # and EmbeddingBag, also what their classes make
HOLDERS = ast.Name | ast.Attribute | ast.Subscript


def given(culprit: Culprit, request: ask.GiveParameters) -> Ways:
    """`Adam(G.parameters())` for `Adam(D.parameters())`, or `made_for(G)` where that is called."""
    for depth, scope in enumerate(request.usage.scopes):
        source, call = culprit.found(scope.place)
        if not isinstance(call, ast.Call):
            continue
        wanted = _covering(scope.holders, {*request.leaves})
        if not wanted:
            continue
        names = {one.text for one in scope.holders if one.held == one.of and not one.bare}
        found = [node for node in _parts(call) if source.of(node) in names]
        if len(found) == len(wanted) == 1 and not wanted[0].bare:
            yield (source.replaced(found[0], wanted[0].text),)
        elif not depth and (first := argument(call, "params", 0)) is not None:
            text = f"[{_all_of(wanted)}]" if len(wanted) > 1 or wanted[0].bare else ""
            text = text or f"{wanted[0].text}.parameters()"
            yield (source.replaced(first, text),)
    yield from made_later(culprit)


def added(culprit: Culprit, wanted: ask.ToHold) -> Ways:
    """`Adam([*G.parameters(), *F.parameters()])` for `Adam(G.parameters())`."""
    for scope in wanted.usage.scopes[:1]:
        source, call = culprit.found(scope.place)
        first = argument(call, "params", 0)
        more = _all_of(_covering(scope.holders, {*wanted.leaves}))
        if first is None or not more:
            continue
        groups = [isinstance(one, ast.Dict) for one in ast.walk(first)]
        match first:
            case ast.List(elts=[*_, last]) if all(groups[1 : len(first.elts) + 1]):
                past = source.extent(last)[1]
                yield (source.edit(past, past, f', {{"params": [{more}]}}'),)
            case ast.List(elts=[*_, last]) if not any(groups):
                past = source.extent(last)[1]
                yield (source.edit(past, past, f", {more}"),)
            case ast.Call() | ast.BinOp() | ast.ListComp() | ast.GeneratorExp() if not any(groups):
                text = source.of(first) if isinstance(first, ast.Call) else f"({source.of(first)})"
                yield (source.replaced(first, f"[*{text}, {more}]"),)


def with_collected(culprit: Culprit, request: ask.AddParameters) -> Ways:
    """`AdamW([*groups, group])` for `AdamW(groups)`, of a group that is there and has them all, or
    of a list in the place of one; in the place of what is listed twice."""
    yield from _instead(culprit, request)
    first = argument(culprit.call, "params", 0)
    if request.collected and isinstance(first, HOLDERS):
        group = request.collected.removesuffix("['params']")
        is_list = group == request.collected
        for more in (f"*{group}", f'{{"params": {group}}}') if is_list else (group,):
            yield [culprit.replace(first, f"[*{culprit.text(first)}, {more}]")]
    yield from added(culprit, request)


def _instead(culprit: Culprit, request: ask.AddParameters) -> Iterator[Candidate]:
    """`[*net.parameters(), *head.parameters()]` for `[*net.parameters(), *net.parameters()]`."""
    source, node = culprit.source, culprit.node
    if request.usage.twice_at is None or not isinstance(node, HOLDERS):
        return
    own, root, twice = source.of(node), _root(node) or "", {*request.usage.twice}
    for scope in request.usage.scopes:
        parts_of = [one for one in scope.holders if one.leaves and not one.bare]
        left = [one for one in parts_of if not one.held and {*one.leaves} <= {*request.leaves}]
        most = max((len(one.leaves) for one in left), default=0)
        texts = [one.text for one in left if len(one.leaves) == most]
        wanted = [one for one in texts if not any(one.startswith(f"{whole}.") for whole in texts)]
        known = [one.text for one in parts_of if {*one.leaves} <= twice]
        same = [one for one in known if one.rpartition(".")[2] == own.rpartition(".")[2]]
        if len(wanted) == 1 and len(same) < 2:
            there, _, rest = (same or [own])[0].partition(".")
            is_inside = own == f"{root}.{rest}"  # `self.net` of a method, for `model.net`
            is_also = wanted[0].startswith(f"{there}.")
            text = f"{root}{wanted[0][len(there) :]}" if is_inside and is_also else wanted[0]
            title = f"give it `{text}` in the place of what is listed twice"
            yield Candidate(title, (source.replaced(node, text),))


def made_later(culprit: Culprit) -> Iterator[Candidate]:
    """The optimizer made, there or by the function that is called there, after the last statement
    that replaces a part of what it is given; or below what is computed from that, for this: for
    `net`, of `net = deepcopy(template)`."""
    source = culprit.source
    if culprit.call is None:
        return
    for call in (culprit.call, *calls_around(source, culprit.call)):
        made, held = source.nodes.statement(call), [*_parts(call)]
        if not isinstance(made, ast.Assign | ast.AnnAssign):  # it is used up there
            continue
        names = set[str]().union(*map(names_in, held))
        later = (one for one in block_of(source, made) if one.lineno > made.lineno)
        until_trained = takewhile(lambda one: not isinstance(one, ast.For | ast.While), later)
        for last in [one for one in until_trained if _replaces(source, one, names)][-1:]:
            edits = moved(source, made, last)
            yield Candidate("make the optimizer after the model is complete", edits)
        for found in (edits for given in held for edits in _below(source, call, given)):
            title = "make the optimizer for the model that is made of this"
            yield Candidate(title, tuple(found))


def flagged(culprit: Culprit, request: ask.SetFlag) -> Ways:
    """`layer.requires_grad_(False)` for `layer.requires_grad = False`, which of a tensor is the
    same; `requires_grad` for what is spelled otherwise."""
    source, edits = culprit.source, list[Edit]()
    for one in source.nodes.every(ast.Assign):
        target = one.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != request.attribute:
            continue
        text = source.of(target.value)
        if request.of_module:
            edits.append(source.replaced(one, f"{text}.requires_grad_({source.of(one.value)})"))
        else:
            edits.append(source.replaced(target, f"{text}.requires_grad"))
    yield edits


def with_layout(culprit: Culprit, request: ask.SetSparse) -> Ways:
    """`nn.Embedding(n, d, sparse=False)` for `sparse=True`, and the other way round."""
    old = not request.sparse
    made = [statement_at(culprit.source, place) for place in dict.fromkeys(request.layers)]
    calls = [
        [one for one in parts(statement, ast.Call) if _is_sparse(culprit, one) is old]
        for statement in made
        if statement is not None
    ]
    if all(calls):
        yield [
            keyword(culprit.source, one, "sparse", str(request.sparse))
            for one in chain.from_iterable(calls)
        ]


def _is_sparse(culprit: Culprit, call: ast.Call) -> bool | None:
    """Of a call that makes an embedding, whether its gradients are sparse; None of others."""
    if culprit.dotted(call.func).startswith(_EMBEDDING):
        return any(one.arg == "sparse" for one in call.keywords)
    return None


def _replaces(source: Source, place: ast.AST, names: set[str]) -> bool:
    """`model.fc = nn.Linear(...)` for one of the names, another model for it, or a call of the only
    function of that name which does so to what it is given, or to its own object."""
    if isinstance(place, ast.Assign):
        return _root(place.targets[0]) in names
    call = place.value if isinstance(place, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    named = [one for one in source.nodes.every(ast.FunctionDef) if one.name == called(call)]
    if len(named) != 1:
        return False
    inner = {name for name, one in arguments_of(named[0], call).items() if _root(one) in names}
    if isinstance(call.func, ast.Attribute) and _root(call.func.value) in names:
        inner |= {one.arg for one in named[0].args.args[:1]}
    return bool(inner) and any(_replaces(source, one, inner) for one in parts(named[0], ast.Assign))


def _root(node: ast.expr) -> str | None:
    """The name that an attribute or an item is of in the end: `self` of `self.net[0]`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _below(source: Source, call: ast.Call, given: ast.expr) -> Iterator[Edits]:
    made, text = source.nodes.statement(call), source.of(given)
    for one in parts(source.nodes.function(made), ast.Assign):
        if one.lineno <= made.lineno:
            continue
        target, inside = one.targets[0], parts(one.value, ast.expr)
        read = {source.of(part) for part in inside if isinstance(part, HOLDERS)}
        if isinstance(target, ast.Name | ast.Attribute) and text in read:
            start, past = (place - source.extent(made)[0] for place in source.extent(given))
            line = commented(source, made)
            line = f"{line[:start]}{source.of(target)}{line[past:]}"
            yield moved(source, made, one, line)


def _parts(call: ast.Call) -> Iterator[ast.expr]:
    """What is written in the arguments, `self.net` before the `self` in it, and not that."""
    waiting: list[ast.AST] = [*call.args, *call.keywords]
    while waiting:
        node = waiting.pop()
        if isinstance(node, HOLDERS):
            yield node
        waiting.extend(ast.iter_child_nodes(node))


def _covering(holders: Sequence[Holder], wanted: set[str]) -> list[Holder]:
    """The fewest of the modules that hold these and nothing else that has a gradient, and nothing
    that the optimizer was given, if there are such."""
    found, left = [], set(wanted)
    for one in sorted(holders, key=lambda one: (one.held, -len(one.leaves))):
        if one.leaves and left.issuperset(one.leaves):
            found.append(one)
            left -= {*one.leaves}
    return found if not left else []


def _all_of(holders: Sequence[Holder]) -> str:
    """As the elements of a list."""
    return ", ".join(one.text if one.bare else f"*{one.text}.parameters()" for one in holders)


def prefixed(culprit: Culprit, request: ask.PrefixNames) -> Ways:
    """`named_parameters(prefix="head")` for `named_parameters()`, and `{"head.weight": w}` for
    `{"weight": w}`."""
    source = culprit.source
    match culprit.node:
        case ast.Dict(keys=keys):
            yield [
                source.replaced(one, f'"{request.prefix}.{one.value}"')
                for one in keys
                if isinstance(one, ast.Constant) and one.value in request.names
            ]
        case ast.Call() as call if called(call) != "functional_call":
            dot = "." if called(call) == "state_dict" else ""  # which takes it as it is
            yield (keyword(source, call, "prefix", f'"{request.prefix}{dot}"'),)
