"""Graphs that are let go of, kept, or made anew; updates and computations in another order; forms
whose backward has a derivative."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations, product

from gradscope.facts import Call, Location
from gradscope.facts import requests as ask
from gradscope.ops.traits import key
from gradscope.repair.write.culprit import Culprit, Edits, Ways
from gradscope.repair.write.cycles import loops_around, moved
from gradscope.repair.write.splice import after, before, commented, keyword
from gradscope.repair.write.statements import (
    beside,
    block_of,
    dropped,
    is_needed,
    is_on,
    lines_of,
    node_at,
    not_needed,
    within,
)
from gradscope.rules.wording import proposals
from gradscope.source import Source, definition
from gradscope.source.arguments import argument, arguments_of, defaults_of, spelled
from gradscope.source.hand_updates import Holder
from gradscope.source.literals import constant, number
from gradscope.source.spans import statement_at
from gradscope.source.tree import parts

_PARALLEL = tuple(
    f"torch.nn.parallel.{module}DistributedDataParallel" for module in ("", "distributed.")
)


def let_go(culprit: Culprit, request: ask.DetachCarried) -> Ways:
    """What a moving average takes in, as a number; else `h = h.detach()` behind the backward, or
    `losses.clear()`."""
    name = request.carried.name
    for entering in _averaged(culprit, name):
        text = f"{culprit.text(entering)}.detach()"
        yield culprit.written(proposals.AVERAGED.format(name=name), entering, text)
    text = f"{name} = {name}.detach()"
    if request.carried.parts == "tuple":
        text = f"{name} = tuple(one.detach() for one in {name})"
    elif request.emptied:
        text = f"{name}.clear()"
    elif request.carried.parts == "list":
        text = f"{name} = [one.detach() for one in {name}]"
    statement = statement_at(culprit.source, request.carried.backward)
    yield after(culprit.source, statement, text)


def _averaged(culprit: Culprit, name: str) -> Iterator[ast.expr]:
    """The `x` of `name = 0.9 * name + 0.1 * x`, also where the old average is got from a dictionary
    before: no parameter stands between the old and the new one, so nothing is to be learnt through
    the old one."""
    source, here = culprit.source, culprit.statement
    for target, value in source.nodes.given():
        is_here = isinstance(here, ast.Assign) and target is here.targets[0]
        terms = _both(value, ast.Add) if is_here or source.of(target) == name else ()
        weighed = [_both(term, ast.Mult) for term in terms]
        for kept, new in permutations(weighed, 2):
            weights = [one for one in kept if not _is_of(source, one, target)]
            if len(weights) == 1 and constant(source, weights[0]) is not None:
                weight = source.of(weights[0])
                entering = [one for one in new if weight not in source.of(one)]
                entering = [one for one in entering if not _is_number(source, one)]
                yield from entering if len(entering) == 1 else ()


def _is_of(source: Source, node: ast.expr, target: ast.expr) -> bool:
    """Whether an expression, or what its name was given, is what a target holds until then:
    `self.level.get(key, 1.0)` of `self.level[key]`."""
    given = definition(source, node) or node
    if isinstance(target, ast.Subscript) and isinstance(given, ast.Call):
        function, keys = given.func, given.args[:1]
        both = [source.of(target.value), source.of(target.slice)]
        if isinstance(function, ast.Attribute) and function.attr in ("get", "setdefault"):
            return both == [source.of(function.value), *map(source.of, keys)]
    return source.of(given) == source.of(target)


def _both(node: ast.expr, op: type[ast.operator]) -> tuple[ast.expr, ...]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, op):
        return node.left, node.right
    return ()


def _is_number(source: Source, node: ast.expr) -> bool:
    """Whether nothing but numbers stands in an expression, by name or as literals."""
    given = (one for one in parts(node, ast.expr) if isinstance(one, Holder | ast.Call))
    return all(number(source, one) is not None for one in given)


def detached(culprit: Culprit, request: ask.DetachUse) -> Iterator[Edits]:
    """`name.detach()` in the calls, in the function that calls backward first."""
    found = [_reads(culprit, call, request.name) for call in (request.call, *request.others)]
    if all(found):
        reads = dict.fromkeys(one for calls in found for one in calls)
        yield [culprit.source.replaced(one, f"{request.name}.detach()") for one in reads]


def _reads(culprit: Culprit, call: Call, name: str) -> Sequence[ast.expr]:
    """Where a call reads a variable."""
    source, place = culprit.source, culprit.finding.location
    frames = [one for one in call.frames if one.file == source.file]
    for frame in sorted(frames, key=lambda one: place is None or one.function != place.function):
        inside = parts(node_at(source, frame), ast.expr)
        found = [one for one in inside if isinstance(one, Holder) and source.of(one) == name]
        if found:
            return found
    return ()


def detached_where_read(culprit: Culprit, request: ask.DetachRead) -> Iterator[Edits]:
    """`0.9 * before.detach()`: the operand of the call that is a tensor, as a trial tells; and
    `cache[:n].detach()`."""
    node = culprit.at(request.call.location)
    if isinstance(node, ast.Subscript):
        yield [culprit.source.replaced(node, f"{culprit.source.of(node)}.detach()")]
    for one in spelled(culprit.source, node).positional:
        if isinstance(one, Holder):
            yield [culprit.source.replaced(one, f"{culprit.source.of(one)}.detach()")]


def detached_at_once(culprit: Culprit, request: ask.DetachMade) -> Ways:
    """`(rewards - values).detach()`."""
    node = culprit.at(request.call.location)
    if node is not None:
        yield [culprit.replace(node, f"{culprit.text(node)}.detach()")]


def later(culprit: Culprit, request: ask.UpdateLater) -> Ways:
    """The update, or what leads to it, below the second backward, in one block."""
    update, backward = beside(culprit.source, request.place, request.backward)
    if update is not None and backward is not None:
        yield moved(culprit.source, update, backward)


def after_update(culprit: Culprit, request: ask.ComputeAfterUpdate) -> Ways:
    """The lines of the calls below the update: moved where nobody reads them before, as a condition
    with them has to be, else again."""
    source = culprit.source
    update, backward = beside(source, request.place, request.backward)
    if update is None or backward is None:
        return
    block = block_of(source, update)
    lines = lines_of(request.calls, request.backward)
    found = [one for one in block[: block.index(update)] if is_on(one, lines)]
    assigned = [one for one in found if isinstance(one, ast.Assign)]
    branches = [one for one in found if isinstance(one, ast.If) and _gives_alone(one)]
    if not found or len(assigned) + len(branches) < len(found):
        return
    kept = [one for one in block[: block.index(update) + 1] if one not in found]
    given = [one for branch in branches for one in branch.body if isinstance(one, ast.Assign)]
    if any(is_needed(one, kept) for one in given):
        return
    if edits := after(source, update, *(commented(source, one) for one in found)):
        gone = [*not_needed(assigned, kept), *branches]
        yield [*edits, *(dropped(source, one) for one in gone)]


def _gives_alone(branch: ast.If) -> bool:
    """Whether all that a condition does is to give names a value."""
    return not branch.orelse and all(isinstance(one, ast.Assign) for one in branch.body)


def retained(culprit: Culprit, request: ask.KeepGraph) -> Ways:
    option = "create_graph" if request.learnt else "retain_graph"
    beside: Iterable[Edits] = [()] if request.detach is None else detached(culprit, request.detach)
    for way, switched in product(beside, _switched_on(culprit, request.backward, option)):
        yield [*way, *switched]


def allowing_unused(culprit: Culprit, request: ask.AllowUnused) -> Ways:
    yield from _switched_on(culprit, culprit.finding.location, "allow_unused")


def _switched_on(culprit: Culprit, place: Location | None, name: str) -> Iterator[Edits]:
    node = node_at(culprit.source, place)
    call = node.value if isinstance(node, ast.Expr) else node
    if isinstance(call, ast.Call):
        yield [keyword(culprit.source, call, name, "True")]


def finding_unused(culprit: Culprit, request: ask.FindUnused) -> Ways:
    """`find_unused_parameters=True`, where the file makes the DistributedDataParallel."""
    for call in culprit.calls(_PARALLEL):
        yield [keyword(culprit.source, call, "find_unused_parameters", "True")]


def thawed(culprit: Culprit, request: ask.Thaw) -> Ways:
    """`model.head.requires_grad_(True)` below the loop that freezes all, or in each turn."""
    source, statement = culprit.source, culprit.statement
    lines = tuple(f"{name}.requires_grad_(True)" for name in request.modules)
    for turn in (statement_at(source, place) for place in request.turns):
        if loops_around(source, turn):
            yield before(source, turn, *lines)
            return
    outermost = [statement, *loops_around(source, statement)][-1]
    yield after(source, outermost, *lines)


def asked_for(culprit: Culprit, request: ask.DifferentiateBy) -> Ways:
    """That tensor as the second argument of `torch.autograd.grad`."""
    given = argument(culprit.call, "inputs", 1)
    if given is not None and not isinstance(given, ast.List | ast.Tuple):
        yield [culprit.source.replaced(given, request.name)]


def handed_over(culprit: Culprit, request: ask.HandOver) -> Ways:
    """`net(x, params=fast)`, whose function takes its own where it is given none; `x @ fast[0]` for
    `x @ weight`."""
    source, call = culprit.source, culprit.call
    reads = (one for one in parts(culprit.node, ast.expr) if source.of(one) == request.original)
    if (old := [source.replaced(one, request.name) for one in reads]) or call is None:
        yield old
        return
    file, _ = culprit.found(request.within)
    inside = statement_at(file, request.within)
    function = file.nodes.function(inside) if inside is not None else None
    for holder, name in product(request.holders, _none_given(function, call)):
        yield [keyword(source, call, name, holder)]


def _none_given(function: ast.AST | None, call: ast.Call) -> list[str]:
    """The parameters of a function that are None, since a call gives it nothing for them."""
    if not isinstance(function, ast.FunctionDef):
        return []
    given = {*arguments_of(function, call), *(one.arg for one in function.args.posonlyargs)}
    known = defaults_of(function).items()
    none = [name for name, value in known if getattr(value, "value", ...) is None]
    return [name for name in none if name not in given]


def reduced(culprit: Culprit, request: ask.ReduceLoss) -> Ways:
    """`(weight * error).mean()` where that is made, `loss.mean().backward()`."""
    made, backward = culprit.node, culprit.at(request.backward)
    found = [made] if isinstance(made, ast.expr) and made is not backward else []
    match backward:
        case ast.Call(func=ast.Attribute(what, "backward")):
            found += [what]
        case ast.Call(func=ast.Attribute(), args=[what, *_]):
            found += [what]
    for what, reduction in product(found, ("mean", "sum")):
        yield [culprit.replace(what, f"{culprit.text(what)}.{reduction}()")]


_KERNELS = ("torch.nn.attention.sdpa_kernel(", "torch.nn.attention.SDPBackend.MATH")


def unmarked(culprit: Culprit, request: ask.Unmark) -> Ways:
    """Without `@once_differentiable`."""
    source = culprit.source
    lines = [one.line for one in request.marks]
    starts = [(source.offset(line, 0), source.offset(line + 1, 0)) for line in lines]
    yield [source.edit(start, past, "") for start, past in starts]


def differentiable(culprit: Culprit, request: ask.DifferentiableForm) -> Ways:
    """Attention by the kernel that consists of plain ops, distances by a matrix product."""
    source, call, statement = culprit.source, culprit.call, culprit.statement
    if key(request.op) == key("cdist") and call is not None:
        yield (keyword(source, call, "compute_mode", '"use_mm_for_euclid_dist"'),)
    if key(request.op) == key("_scaled_dot_product_attention") and statement is not None:
        opening = "".join(map(culprit.torch, _KERNELS))
        text = source.of(statement)
        yield (source.replaced(statement, within(source, f"with {opening})", statement, text)),)
