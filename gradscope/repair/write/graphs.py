"""Graphs that are let go of, kept, or made anew; updates and computations in another order."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product

from gradscope.facts import Call, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit, Edits, Ways
from gradscope.repair.write.cycles import loops_around, moved
from gradscope.repair.write.initial import PARAMETERS
from gradscope.repair.write.splice import after, before, commented, keyword, whole_lines
from gradscope.repair.write.statements import beside, block_of, dropped, is_on, lines_of, node_at
from gradscope.repair.write.uses import class_of
from gradscope.rules.wording import proposals
from gradscope.source import Source
from gradscope.source.arguments import argument, spelled
from gradscope.source.hand_updates import Holder
from gradscope.source.literals import number
from gradscope.source.spans import statement_at
from gradscope.source.tree import names_in, parts

_PARALLEL = tuple(
    f"torch.nn.parallel.{module}DistributedDataParallel" for module in ("", "distributed.")
)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


def let_go(culprit: Culprit, request: ask.DetachCarried) -> Ways:
    """What a moving average takes in, as a number; else `h = h.detach()` behind the backward, or
    `losses.clear()`."""
    name = request.carried.name
    for entering in _averaged(culprit.source, name):
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


def _averaged(source: Source, name: str) -> Iterator[ast.expr]:
    """The `x` of `name = 0.9 * name + 0.1 * x`: no parameter stands between the old and the new
    average, so nothing is to be learnt through the old one."""
    for target, value in source.nodes.given():
        terms = _both(value, ast.Add) if source.of(target) == name else ()
        weighed = [_both(term, ast.Mult) for term in terms]
        shares = [[part for part in both if not _is_number(source, part)] for both in weighed]
        if len(shares) == 2 and all(len(share) == 1 for share in shares):
            names = [source.of(share[0]) for share in shares]
            if names.count(name) == 1:
                yield shares[1 - names.index(name)][0]


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
    """`0.9 * before.detach()`: the operand of the call that is a tensor, as a trial tells."""
    node = culprit.at(request.call.location)
    for one in spelled(culprit.source, node).positional:
        if isinstance(one, Holder):
            yield [culprit.source.replaced(one, f"{culprit.source.of(one)}.detach()")]


def detached_at_once(culprit: Culprit, request: ask.DetachMade) -> Ways:
    """`(rewards - values).detach()`."""
    node = culprit.at(request.call.location)
    if node is not None:
        yield [culprit.replace(node, f"{culprit.text(node)}.detach()")]


def each_turn(culprit: Culprit, request: ask.ComputeAnew) -> Ways:
    """What stands before the loop, or before the closure that calls backward, at its begin, and
    where it stood as well where something else reads it there; what a cache or a condition runs
    once, without that."""
    source, backward = culprit.source, statement_at(culprit.source, request.backward)
    made = [statement_at(source, one.location) for one in request.calls]
    parameters = [way for one in made if one is not None for way in whole_parameter(culprit, one)]
    yield from parameters
    if backward is None or parameters:  # a new one in each turn would learn nothing
        return
    frames = dict.fromkeys(frame for one in request.calls for frame in one.frames)
    inner = dict.fromkeys(chain.from_iterable(_from(request.once, one) for one in request.calls))
    yield from (_uncached(culprit, place) for place in inner)
    yield from chain.from_iterable(_where_read(culprit, statement_at(source, f)) for f in frames)
    function = source.nodes.function(backward)
    turns: list[ast.For | ast.While | ast.FunctionDef] = [*loops_around(source, backward)]
    turns += [function] if isinstance(function, ast.FunctionDef) else []
    for turn in turns:
        block, within = block_of(source, turn), request.backward.function
        if turn is function:
            within = within.rpartition(".<locals>.")[0] or "<module>"
        lines = lines_of(request.calls, replace(request.backward, function=within))
        above = [one for part in block[: block.index(turn)] for one in _opened(part)]
        found = [one for one in above if is_on(one, lines)]
        if found and all(isinstance(one, _SIMPLE) and whole_lines(source, one) for one in found):
            edits = before(source, turn.body[0], *(commented(source, one) for one in found))
            gone = _not_needed(found, [one for one in above if one not in found])
            yield [*(dropped(source, one) for one in gone), *edits]
            return
    for place in dict.fromkeys((*inner, *(one.location for one in request.calls))):
        yield _unconditional(culprit, place)
        yield _without_return(culprit, place)


def _from(once: Location | None, call: Call) -> Iterator[Location]:
    """The lines on the way to a call from the one on that has run once, the outermost first."""
    if once in call.frames:
        yield from reversed(call.frames[: call.frames.index(once) + 1])


_CACHES = {
    "functools.cached_property": "property",
    "functools.lru_cache": "",
    "functools.cache": "",
}


def _uncached(culprit: Culprit, place: Location) -> Edits:
    """`@property` for `@cached_property`, and no `@lru_cache`, over the function around a place."""
    source, statement = culprit.source, statement_at(culprit.source, place)
    function = source.nodes.function(statement) if statement is not None else None
    if not isinstance(function, ast.FunctionDef):
        return ()
    found = [one for one in function.decorator_list if culprit.dotted(one) in _CACHES]
    if len(found) != 1:
        return ()
    (cache,) = found
    if text := _CACHES[culprit.dotted(cache)]:
        return [source.replaced(cache, text)]
    last = cache.end_lineno or cache.lineno
    return [source.edit(source.offset(cache.lineno, 0), source.offset(last + 1, 0), "")]


def _opened(statement: ast.stmt) -> Iterator[ast.stmt]:
    """A statement, or those in the body of a loop."""
    if isinstance(statement, ast.For | ast.While):
        yield from chain.from_iterable(map(_opened, statement.body))
    else:
        yield statement


def _where_read(culprit: Culprit, made: ast.stmt | None) -> Iterator[Candidate]:
    """`self.adjacency()` for each `self.adj` in the other methods, where `__init__` has computed it
    from what is the module's own."""
    if not isinstance(made, ast.Assign) or len(made.targets) > 1:
        return
    source, kept = culprit.source, made.targets[0]
    function = source.nodes.function(made)
    is_first = isinstance(function, ast.FunctionDef) and function.name == "__init__"
    if not is_first or not isinstance(kept, ast.Attribute):
        return
    names = (one for one in parts(made.value, ast.Name) if one.id != "self")
    if any(source.nodes.owner(one).node is function for one in names):
        return
    owner = class_of(source, kept)
    every = [one for one in source.nodes.every(ast.Attribute) if one.attr == kept.attr]
    reads = [one for one in every if one is not kept and class_of(source, one) is owner]
    if owner is not None and reads and len(reads) + 1 == len(every):
        edits = (culprit.replace(one, source.of(made.value)) for one in reads)
        title = f"compute `{source.of(kept)}` wherever it is read"
        yield Candidate(title, (dropped(source, made), *edits))


def whole_parameter(culprit: Culprit, made: ast.stmt) -> Iterator[Candidate]:
    """`Parameter(x * std)` for `Parameter(x) * std`, which is no leaf and computed once."""
    value = made.value if isinstance(made, ast.Assign | ast.AnnAssign) else None
    calls = parts(value, ast.Call)
    inside = [one for one in calls if culprit.dotted(one) in PARAMETERS and one.args]
    if value is not None and len(inside) == 1 and inside[0] is not value:
        (call,) = inside
        text = culprit.source.written(value, {call: culprit.source.of(call.args[0])})
        name = culprit.source.of(call.func)
        yield culprit.written("make a parameter of the whole", value, f"{name}({text})")


def _unconditional(culprit: Culprit, place: Location | None) -> Edits:
    """The body of the `if` around a place, at its depth."""
    source, statement = culprit.source, statement_at(culprit.source, place)
    around = source.parents[statement] if statement is not None else None
    if not isinstance(around, ast.If) or around.orelse:
        return ()
    lines = whole_lines(source, around)
    if lines is None:
        return ()
    indent = source.indent(around.lineno)
    bodies = (commented(source, one) for one in around.body)
    text = "".join(f"{indent}{body}{source.newline}" for body in bodies)
    return [source.edit(*lines, text)]


def _without_return(culprit: Culprit, place: Location | None) -> Edits:
    """The statement without the `if self.kept is not None: return self.kept` above it."""
    source, statement = culprit.source, statement_at(culprit.source, place)
    block = block_of(source, statement) if statement is not None else []
    for at, one in enumerate(block):
        match one:
            case _ if one is statement:
                break
            case ast.If(body=[ast.Return(ast.Attribute() | ast.Subscript() as kept)], orelse=[]):
                made = chain.from_iterable(parts(below, ast.Assign) for below in block[at + 1 :])
                targets = chain.from_iterable(below.targets for below in made)
                if whole_lines(source, one) and source.of(kept) in map(source.of, targets):
                    return [dropped(source, one)]
    return ()


def later(culprit: Culprit, request: ask.UpdateLater) -> Ways:
    """The update, or what leads to it, below the second backward, in one block."""
    source = culprit.source
    for frame in request.update.frames:
        if (frame.file, frame.function) == (source.file, request.backward.function):
            update, backward = beside(source, frame, request.backward)
            if update is not None and backward is not None:
                yield moved(source, update, backward)


def after_update(culprit: Culprit, request: ask.ComputeAfterUpdate) -> Ways:
    """The lines of the calls below the update: moved where nobody reads them before, else again."""
    source = culprit.source
    update, backward = beside(source, request.update.location, request.backward)
    if update is None or backward is None:
        return
    block = block_of(source, update)
    lines = lines_of(request.calls, request.backward)
    found = [one for one in block[: block.index(update)] if is_on(one, lines)]
    assigned = [one for one in found if isinstance(one, ast.Assign)]
    if not found or len(assigned) < len(found):
        return
    kept = [one for one in block[: block.index(update) + 1] if one not in found]
    if edits := after(source, update, *(commented(source, one) for one in found)):
        yield [*edits, *(dropped(source, one) for one in _not_needed(assigned, kept))]


def _not_needed(found: Sequence[ast.stmt], kept: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that may go: what a line that stays reads, stays."""
    for one in reversed(found):
        kept += [one] if isinstance(one, ast.Assign) and _is_needed(one, kept) else []
    return [one for one in found if one not in kept]


def _is_needed(what: ast.Assign, others: Iterable[ast.stmt]) -> bool:
    """Whether one of the others, below it, has a name that it assigns."""
    names = set[str]().union(*map(names_in, what.targets))
    below = (names_in(other) for other in others if other.lineno > what.lineno)
    return any(names & theirs for theirs in below)


def retained(culprit: Culprit, request: ask.KeepGraph) -> Ways:
    option = "create_graph" if request.learnt else "retain_graph"
    beside: Iterable[Edits] = [()] if request.detach is None else detached(culprit, request.detach)
    for way, switched in product(beside, _switched_on(culprit, request.backward, option)):
        yield [*way, *switched]


def allowing_unused(culprit: Culprit) -> Ways:
    yield from _switched_on(culprit, culprit.finding.location, "allow_unused")


def _switched_on(culprit: Culprit, place: Location | None, name: str) -> Iterator[Edits]:
    node = node_at(culprit.source, place)
    call = node.value if isinstance(node, ast.Expr) else node
    if isinstance(call, ast.Call):
        yield [keyword(culprit.source, call, name, "True")]


def finding_unused(culprit: Culprit) -> Ways:
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


def reduced(culprit: Culprit) -> Ways:
    """`loss.mean().backward()`."""
    match culprit.node:
        case ast.Call(func=ast.Attribute(what, "backward")):
            pass
        case ast.Call(func=ast.Attribute(), args=[what, *_]):
            pass
        case _:
            return
    for reduction in ("mean", "sum"):
        yield [culprit.source.replaced(what, f"{culprit.text(what)}.{reduction}()")]
