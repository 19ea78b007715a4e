"""Graphs that are let go of, kept, or made anew; updates and computations in another order; what is
read in the place of the tensor that is differentiated by; forms whose backward has a derivative."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, permutations, product

from gradscope.facts import Call, Edit, Location
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
from gradscope.source.tree import assigned, parts

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


def kept_detached(culprit: Culprit, request: ask.KeepDetached) -> Iterator[Edits]:
    """`self.h = self.h.detach()`, and `h.detach_()` of what a loop or a caller gives."""
    source = culprit.source
    match culprit.at(request.location):
        case ast.Call(func=ast.Attribute(tensor, "detach")) as call:
            in_place = [source.replaced(call, f"{source.of(tensor)}.detach_()")]
            kept = [source.replaced(call, f"{source.of(tensor)} = {source.of(call)}")]
            # A name that nothing else reads, as that of a loop over a list, keeps it for nobody.
            is_read = not isinstance(tensor, ast.Name) or len(source.nodes.reads(tensor)) > 1
            yield from (kept, in_place) if is_read else (in_place,)


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
    branches = [one for one in found if isinstance(one, ast.If) and not one.orelse]
    branches = [one for one in branches if all(isinstance(each, ast.Assign) for each in one.body)]
    if not found or len(assigned) + len(branches) < len(found):
        return
    kept = [one for one in block[: block.index(update) + 1] if one not in found]
    given = [one for branch in branches for one in branch.body if isinstance(one, ast.Assign)]
    if any(is_needed(one, kept) for one in given):
        return
    if edits := after(source, update, *(commented(source, one) for one in found)):
        gone = [*not_needed(assigned, kept), *branches]
        yield [*edits, *(dropped(source, one) for one in gone)]


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


_TAKEN_APART = {"split": "cat", "chunk": "cat", "unbind": "stack"}
Column = tuple[int, int | None, str]  # where a view starts and ends along the last dimension


def given_instead(culprit: Culprit, request: ask.GiveInstead) -> Iterator[Edits]:
    """`net(xs)` for `net(x)`; `net(dict(batch, x=xs))` for `net(batch)`, which reads `batch["x"]`,
    and the same of the field of a dataclass or a named tuple."""
    name, original = request.given.name, request.given.original
    arguments = [one for one in map(culprit.at, request.given.arguments) if one is not None]
    new: tuple[Edit, ...] = ()
    match ast.parse(original, mode="eval").body:
        case ast.Subscript(slice=ast.Constant(value=str(key))) if key.isidentifier():
            forms = [f"dict({{0}}, {key}={name})"]
        case ast.Subscript(slice=key):
            forms = [f"{{{{**{{0}}, {ast.unparse(key)}: {name}}}}}"]
        case ast.Attribute(attr=key):
            replace = culprit.names.spell("dataclasses.replace")
            new = culprit.imported("dataclasses") if replace is None else ()
            forms = [f"{replace or 'dataclasses.replace'}({{0}}, {key}={name})"]
            forms += [f"{{1}}._replace({key}={name})"]
        case _:
            forms = [name]
    for form in forms:
        texts = [(one, culprit.source.of(one), culprit.text(one)) for one in arguments]
        edits = [
            culprit.replace(one, name if text == original else form.format(text, atom))
            for one, text, atom in texts
        ]
        is_replaced = "dataclasses" in form and any(text != original for _, text, _ in texts)
        yield [*(new if is_replaced else ()), *edits]


def joined(culprit: Culprit, request: ask.JoinViews) -> Ways:
    """`net(torch.cat([x, t], dim=-1))` for `net(points)`, of which `x` and `t` are the columns."""
    source = culprit.source
    for read in parts(culprit.node, ast.Name):
        text = _of_parts(source, read) or _of_columns(source, read)
        if isinstance(read.ctx, ast.Load) and text is not None:
            yield (culprit.replace(read, f"{culprit.torch('torch.')}{text}"),)


def _of_parts(source: Source, read: ast.Name) -> str | None:
    """Of `x, t = points.split(1, dim=1)`."""
    for made in _made_above(source, read):
        target, found = made.targets[0], spelled(source, made.value)
        is_apart = found.name in _TAKEN_APART and isinstance(target, ast.Tuple)
        if is_apart and getattr(found.first, "id", None) == read.id:
            behind = found.positional[1 if found.name == "unbind" else 2 :]
            dims = filter(None, (found.keywords.get("dim"), *behind))
            dim = next(map(source.of, dims), "0")
            views = source.of(target).strip("()")
            return f"{_TAKEN_APART[found.name]}([{views}], dim={dim})"
    return None


def _of_columns(source: Source, read: ast.Name) -> str | None:
    """Of `x = points[:, 0:1].requires_grad_()` and others; columns without a name stay as they are
    before one view, and behind it."""
    pairs = (
        pair for one in _made_above(source, read) for pair in assigned(one.targets[0], one.value)
    )
    found = sorted(filter(None, (_column(target, value, read.id) for target, value in pairs)))
    if not found or any(one[1] != other[0] for one, other in pairwise(found)):
        return None
    views, first, past = [one[2] for one in found], found[0][0], found[-1][1]
    if first:
        views.insert(0, f"{read.id}[..., :{first}]")
    if past is not None and len(found) == 1:
        views.append(f"{read.id}[..., {past}:]")
    return f"cat([{', '.join(views)}], dim=-1)"


def _column(target: ast.expr, value: ast.expr, of: str) -> Column | None:
    """Of `points[:, 1:2]`; one that is taken by a number has a dimension less."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    if not isinstance(value, ast.Subscript) or not isinstance(target, ast.Name):
        return None
    place = value.slice.elts if isinstance(value.slice, ast.Tuple) else []
    if not place or not isinstance(value.value, ast.Name) or value.value.id != of:
        return None
    whole = all(isinstance(one, ast.Slice) and one.lower is one.upper is None for one in place[:-1])
    is_rest = len(place) == 2 and isinstance(place[0], ast.Constant) and place[0].value is ...
    match place[-1]:
        case ast.Slice(lower=lower, upper=upper, step=None) if whole or is_rest:
            ends = [getattr(one, "value", one) for one in (lower, upper)]
            start, end = ends[0] or 0, ends[1]
            if isinstance(start, int) and (end is None or isinstance(end, int)):
                return start, end, target.id
        case ast.Constant(value=int(at)) if whole or is_rest:
            return at, at + 1, f"{target.id}.unsqueeze(-1)"
    return None


def _made_above(source: Source, read: ast.Name) -> Iterator[ast.Assign]:
    """The assignments of its function above it."""
    made = parts(source.nodes.function(read), ast.Assign)
    return (one for one in made if one.lineno < read.lineno)
