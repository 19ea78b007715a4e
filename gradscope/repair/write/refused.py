"""What autograd does not refuse: new tensors for written ones, leaves that are written into without
a graph, and the same random numbers where backward runs a part again."""

import ast
from collections.abc import Iterator
from functools import partial
from itertools import chain, takewhile

from gradscope.facts import Edit, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.parameters import HOLDERS
from gradscope.repair.write.splice import after, before, keyword, whole_lines
from gradscope.repair.write.statements import block_of, node_at, within
from gradscope.repair.write.training import optimizers
from gradscope.source import Source, binding, operands
from gradscope.source.arguments import BINARY, called, is_in_place, spelled
from gradscope.source.hand_updates import Holder, holder_of, in_place_of, is_write, written
from gradscope.source.spans import ancestors, statement_at
from gradscope.source.tree import parts

# Ops that only write: without the underscore they are no ops, or others.
_FILLS = frozenset("copy_ fill_ zero_ uniform_ normal_ set_ resize_ random_ bernoulli_".split())
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "mm": "@"}


def out_of_place(culprit: Culprit, request: ask.OutOfPlace) -> Ways:
    """`x = x + y` for `x += y`, `x = x.relu()` for `x.relu_()`, `inplace=False`; where a part of a
    tensor is written, a copy of it before."""
    source, place = culprit.source, request.place
    node = node_at(source, place)
    if request.module:
        yield _not_in_place(source, request.module)
    if isinstance(node, ast.Call):
        yield _switched_off(source, node)
        yield _renamed(source, node)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, Holder):
        sign = _SIGNS.get(BINARY.get(type(node.op), ""))
        if sign is not None:
            target, value = source.of(node.target), source.of(node.value)
            value = value if isinstance(node.value, ast.Constant) else culprit.text(node.value)
            yield [source.replaced(node, f"{target} = {target} {sign} {value}")]
    holder = holder_of(written(source, node))
    yield _named_anew(source, node)
    if holder is not None:
        name = source.of(holder)
        yield before(source, statement_at(source, place), f"{name} = {name}.clone()")


def _named_anew(source: Source, node: ast.AST | None) -> Iterator[Edit]:
    """`x = y` for `x.copy_(y)`, of what a custom Function has saved."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr="copy_"), args=[value]):
            given = binding(source, name)
            saved = given.statement if given is not None else None
            if getattr(getattr(saved, "value", None), "attr", "") == "saved_tensors":
                text = f"{name.id} = {source.of(value)}"
                yield source.replaced(source.nodes.statement(node), text)


def run_once(culprit: Culprit, request: ask.RunOnce) -> Ways:
    """`layer(x)` for `checkpoint(layer, x, use_reentrant=False)`."""
    source, call = culprit.source, culprit.at(request.place)
    if isinstance(call, ast.Call) and call.args:
        given = [source.of(one) for one in call.args[1:]]
        own = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug")
        named = (key for key in call.keywords if key.arg not in (*own, "early_stop"))
        given += [
            f"{key.arg}={source.of(key.value)}" if key.arg else f"**{source.of(key.value)}"
            for key in named
        ]
        yield [culprit.replace(call, f"{culprit.text(call.args[0])}({', '.join(given)})")]


def in_place(culprit: Culprit, request: ask.UpdateInPlace) -> Ways:
    """`w -= 0.1 * w.grad` for `w = w - 0.1 * w.grad`, and for those below it, in
    `with torch.no_grad():`, where they do not stand in one."""
    source, guard, first = culprit.source, culprit.torch("torch.no_grad()"), culprit.statement
    if first is None or whole_lines(source, first) is None:
        return
    block = block_of(source, first)
    statements = list(takewhile(partial(in_place_of, source), block[block.index(first) :]))
    if not statements:
        return
    names = [source.of(one.targets[0]) for one in statements if isinstance(one, ast.Assign)]
    start, (_, past) = source.extent(first)[0], whole_lines(source, statements[-1]) or (0, 0)
    new, indent = source.newline, source.indent(first.lineno)
    text = source.text[start:past].rstrip(new)
    for one in reversed(statements):
        begin, end = (at - start for at in source.extent(one))
        text = text[:begin] + in_place_of(source, one) + text[end:]
    for name in names:
        text += "" if _is_cleared(source, f"{name}.grad") else f"{new}{indent}{name}.grad = None"
    around = list(ancestors(source, first))
    items = (item for one in around for item in getattr(one, "items", ()))
    guards = [item.context_expr for item in items]
    guards += [one for each in around for one in getattr(each, "decorator_list", ())]
    if not any(source.of(one) in (guard, guard.removesuffix("()")) for one in guards):
        text = within(source, f"with {guard}", first, text)
    yield [source.edit(start, past, text + new)]


def _is_cleared(source: Source, gradient: str) -> bool:
    """Whether the program clears it: the tensors that took the leaf's place had none."""
    for node in source.nodes.every(ast.Attribute):
        if node.attr == "zero_grad":
            return True
        if source.of(node) == gradient:
            above = source.parents[node]
            if not isinstance(node.ctx, ast.Load) or getattr(above, "attr", "") == "zero_":
                return True
    return False


def leaf_at_last(culprit: Culprit, request: ask.LeafAtLast) -> Ways:
    """`w = (torch.randn(3, requires_grad=True) * 0.1).detach().requires_grad_()`, also returned."""
    statement = culprit.statement
    if isinstance(statement, ast.Assign | ast.Return) and statement.value is not None:
        text = f"{culprit.text(statement.value)}.detach().requires_grad_()"
        yield [culprit.source.replaced(statement.value, text)]


def gradient_kept(culprit: Culprit, request: ask.RetainGradient) -> Ways:
    """`h.retain_grad()` below the line that makes it."""
    if isinstance(culprit.statement, ast.Assign):
        yield after(culprit.source, culprit.statement, f"{request.name}.retain_grad()")


def projected(culprit: Culprit, request: ask.ProjectLeaf) -> Ways:
    """`with torch.no_grad(): x.clamp_(0, 1)` for `x = torch.clamp(x, 0, 1)`."""
    source, node = culprit.source, culprit.at(request.call.location)
    statement, op = statement_at(source, request.call.location), spelled(source, node)
    if not isinstance(statement, ast.Assign) or not isinstance(node, ast.Call):
        return
    name = source.of(statement.targets[0])
    if statement.value is node and source.of(op.positional[0]) == name:
        bounds = [source.of(one) for one in op.positional[1:]]
        bounds += [f"{key}={source.of(one)}" for key, one in op.keywords.items()]
        text = f"{name}.{op.name}_({', '.join(bounds)})"
        guard = culprit.torch("torch.no_grad()")
        yield [source.replaced(statement, within(source, f"with {guard}", statement, text))]


def copied_leaf(culprit: Culprit, request: ask.CopyLeaf) -> Ways:
    """`x = x.clone()` before it. Nothing where the program reads the gradient of that name, or an
    optimizer is given it: the copy is no leaf."""
    source = culprit.source
    given = [one.value for one in source.nodes.every(ast.Attribute) if one.attr == "grad"]
    for call in optimizers(culprit):
        given += [one for one in parts(call, ast.expr) if isinstance(one, Holder)]
    if request.name not in map(source.of, given):
        yield before(source, culprit.statement, f"{request.name} = {request.name}.clone()")


def _not_in_place(source: Source, module: str) -> Iterator[Edit]:
    """Wherever the file makes a layer of that class: in place it computes the same."""
    for call in source.nodes.every(ast.Call):
        if called(call) == module:
            yield from _switched_off(source, call)
            for given in call.args:
                if isinstance(given, ast.Constant) and given.value is True:
                    yield source.replaced(given, "False")


def _switched_off(source: Source, call: ast.Call) -> Iterator[Edit]:
    for one in call.keywords:
        if one.arg == "inplace" and isinstance(one.value, ast.Constant) and one.value.value is True:
            yield source.replaced(one.value, "False")


def _renamed(source: Source, call: ast.Call) -> Iterator[Edit]:
    """Without the underscore: `x = x.relu()` where the result was not used, else `x.relu()`."""
    function, name = call.func, called(call)
    if not is_in_place(call) or name in _FILLS:
        return
    if not isinstance(function, ast.Attribute):
        return
    statement = source.nodes.statement(call)
    target = written(source, call)
    if isinstance(statement, ast.Expr) and statement.value is call:
        if not isinstance(target, Holder):
            return
        start = source.extent(call)[0]
        yield source.edit(start, start, f"{source.of(target)} = ")
    end = source.extent(function)[1]
    yield source.edit(end - 1, end, "")


def copied(culprit: Culprit, request: ask.CopyWhenSaved) -> Ways:
    """`.clone()` behind what the op saves: its result, or an operand; first where a part of what is
    written later is handed to the function that it is in, and to all that reads it there."""
    source, node = culprit.source, node_at(culprit.source, request.call.location)
    if not isinstance(node, ast.expr):
        return
    if request.role == "result":
        yield [source.replaced(node, f"{culprit.text(node)}.clone()")]
        return
    later = holder_of(written(source, node_at(source, request.write)))
    # In a method the model's own parameter; and a module that is called is no tensor.
    path = request.name.split(".")
    names = {request.name, *(".".join(("self", *path[at:])) for at in range(1, len(path)))}
    names |= {source.of(later)} - {"self"} if later is not None else set()
    given = operands(source, node, request.call.op).get(request.role)
    handing = [node_at(source, one) for one in request.call.frames[1:]]
    handed = [one for each in handing for one in _of_variables(source, each, names)]
    for one in (*handed, given, *_of_variables(source, node, names)):
        if isinstance(one, HOLDERS) and isinstance(one.ctx, ast.Load):
            yield [source.replaced(one, f"{culprit.text(one)}.clone()")]


def _of_variables(source: Source, node: ast.AST | None, names: set[str]) -> Iterator[ast.expr]:
    """The variables of these names in an expression, or a part of one."""
    for one in parts(node, ast.expr) if node is not None else ():
        of = holder_of(one)
        if of is not None and source.of(of) in names:
            yield one


def without_grad(culprit: Culprit, request: ask.WithoutGrad) -> Ways:
    """The statement, and those below it that write as well, in `with torch.no_grad():`."""
    source, guard, statement = culprit.source, culprit.torch("torch.no_grad()"), culprit.statement
    if statement is None or whole_lines(source, statement) is None:
        return
    block = block_of(source, statement)
    rest = takewhile(partial(is_write, source), block[block.index(statement) + 1 :])
    start, end = source.extent(statement)[0], source.extent([statement, *rest][-1])[1]
    text = within(source, f"with {guard}", statement, source.text[start:end])
    yield [source.edit(start, end, text)]


def kept(culprit: Culprit, request: ask.KeepRandomState) -> Ways:
    """`checkpoint(..., preserve_rng_state=True)`."""
    if culprit.call is not None:
        yield (keyword(culprit.source, culprit.call, "preserve_rng_state", "True"),)


def restored(culprit: Culprit, request: ask.RestoreRandomState) -> Ways:
    """The generator's state kept in `ctx`, or in `self`, before the part runs first, and set in the
    `with` of backward in which it runs again; those that come after it draw as they did."""
    edits = [_restored(culprit, *both, request.device) for both in request.places]
    if all(edits):
        yield dict.fromkeys(chain.from_iterable(edits))


def _restored(
    culprit: Culprit, again: Location | None, first: Location | None, device: str
) -> tuple[Edit, ...]:
    source, calls = culprit.source, [culprit.at(one) for one in (first, again)]
    match calls, [source.nodes.function(one) for one in calls if one is not None]:
        case (
            [ast.Call() as forward, ast.Call() as backward],
            [
                ast.FunctionDef(args=ast.arguments(args=[one, *_])) as given,
                ast.FunctionDef(args=ast.arguments(args=[other, *_])) as function,
            ],
        ) if one.arg == other.arg and source.parents[given] is source.parents[function]:
            kept = f"{one.arg}.rng_{(called(forward) or 'state').strip('_')}"
        case _:
            return ()
    around = ancestors(source, backward)
    block = next((one for one in around if isinstance(one, ast.With)), None)
    if block is None or source.nodes.function(block) is not function:
        return ()
    of, devices = ("torch", "devices=[]") if device == "cpu" else (f"torch.{device}", "")
    take, give = (culprit.torch(f"{of}.{one}_rng_state") for one in ("get", "set"))
    last = block.items[-1].optional_vars or block.items[-1].context_expr
    end = source.extent(last)[1]
    return (
        *before(source, source.nodes.statement(forward), f"{kept} = {take}()"),
        source.edit(end, end, f", {culprit.torch('torch.random.fork_rng')}({devices})"),
        *before(source, block.body[0], f"{give}({kept})"),
    )
