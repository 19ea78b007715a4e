"""What is to be a leaf, or a value without a graph, and is written so that torch takes it."""

import ast

from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.detached import FACTORIES
from gradscope.repair.write.reading import Reading
from gradscope.repair.write.splice import after, before, keyword
from gradscope.repair.write.statements import within
from gradscope.source.spans import ancestors
from gradscope.source.tree import assigned, parts

_MAKERS = FACTORIES | {"torch.empty", "torch.randint", "torch.randperm"}


def with_floats(culprit: Culprit, request: ask.WithFloats) -> Ways:
    """`dtype=torch.float32` where the numbers are made, else `x.float()`."""
    source, call, statement = culprit.source, culprit.call, culprit.statement
    if call is not None and culprit.dotted(call).startswith("torch."):
        made = call if culprit.dotted(call) in _MAKERS else next(iter(call.args), None)
        if isinstance(made, ast.Call) and culprit.dotted(made) in _MAKERS:
            yield [keyword(source, made, "dtype", culprit.torch("torch.float32"))]
        elif made is not None:
            yield [source.replaced(made, f"{culprit.text(made)}.float()")]
    elif call is not None and isinstance(call.func, ast.Attribute):
        value = call.func.value
        text = f"{culprit.text(value)}.float().{call.func.attr}()"
        is_all = isinstance(statement, ast.Expr) and statement.value is call
        if isinstance(value, ast.Name) and is_all:
            text = f"{value.id} = {text}"
        yield [source.replaced(call, text)]
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
        holder = source.of(statement.targets[0].value)
        yield before(source, statement, f"{holder} = {holder}.float()")


def copied(culprit: Culprit, request: ask.CopyWhenKept) -> Ways:
    """`ctx.mask = mask.clone()`."""
    statement = culprit.statement
    if not isinstance(statement, ast.Assign):
        return
    for target, value in assigned(statement.targets[0], statement.value):
        if isinstance(target, ast.Attribute) and target.attr == request.attribute:
            yield [culprit.replace(value, f"{culprit.text(value)}.clone()")]


def without_graph(culprit: Culprit, request: ask.KeepWithoutGraph) -> Ways:
    """`self.h = h.detach()` for `self.h = h`, and `h = net(x)` before it for `self.h = net(x)`,
    where only the lines below it in its function read it."""
    source, statement = culprit.source, culprit.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    target, function = statement.targets[0], source.nodes.function(statement)
    reads = [
        one
        for one in source.nodes.every(ast.Attribute)
        if one.attr == request.attribute and isinstance(one.ctx, ast.Load)
    ]
    others = [one for one in reads if source.nodes.function(one) is not function]
    if not reads or (len(others) == len(reads) and isinstance(statement.value, ast.Name)):
        yield [source.replaced(statement.value, f"{culprit.text(statement.value)}.detach()")]
        return
    if others:
        return
    name = next(source.free([request.attribute, f"{request.attribute}_"]))
    kept = f"{source.of(target)} = {name}.detach()"
    yield [
        source.replaced(target, name),
        *after(source, statement, kept),
        *(source.replaced(one, name) for one in reads),
    ]


def for_array(culprit: Culprit, request: ask.DetachForArray) -> Ways:
    """`x.detach().numpy()`, `np.mean(x.detach())`."""
    for one in parts(culprit.node, ast.expr):
        if culprit.source.of(one) == request.name:
            yield [culprit.source.replaced(one, f"{culprit.text(one)}.detach()")]
            return


def cut_off(culprit: Culprit, request: ask.DetachInstead) -> Ways:
    """`z = z.detach()` for `z.requires_grad = False` and `z.requires_grad_(False)`."""
    source, statement, name = culprit.source, culprit.statement, request.name
    is_set = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    if statement is not None and (is_set or isinstance(statement, ast.Expr)):
        yield [source.replaced(statement, f"{name} = {name}.detach()")]
    elif culprit.call is not None:
        yield [source.replaced(culprit.call, f"{name}.detach()")]


def written_into(culprit: Culprit, request: ask.WriteIntoParameter) -> Ways:
    """`with torch.no_grad(): w.copy_(value)` for `w = value`."""
    source, statement = culprit.source, culprit.statement
    if isinstance(statement, ast.Assign):
        text = f"{request.name}.copy_({source.of(statement.value)})"
        guard = culprit.torch("torch.no_grad()")
        yield [source.replaced(statement, within(source, f"with {guard}", statement, text))]


def by_magnitude(culprit: Culprit, request: ask.ByMagnitude) -> Ways:
    """`z.abs() ** 2` for `z ** 2` in the statement that makes the loss, or where its names are
    given what they are."""
    for one in parts(culprit.statement, ast.expr):
        read = Reading(culprit, one)
        if (base := read.squared(one)) is not None:
            yield [culprit.replace(read.meaning(one), f"{culprit.text(base)}.abs() ** 2")]
            return


def on_context(culprit: Culprit, request: ask.KeepOnContext) -> Ways:
    """`ctx.n = n` below `ctx.save_for_backward(x)`, and `n = ctx.n` where backward unpacks."""
    source, call = culprit.source, culprit.call
    if call is None or not isinstance(call.func, ast.Attribute):
        return
    owner = next((one for one in ancestors(source, call) if isinstance(one, ast.ClassDef)), None)
    unpacked = [
        (one, one.targets[0].elts, one.value.value)
        for one in parts(owner, ast.Assign)
        if isinstance(one.targets[0], ast.Tuple) and isinstance(one.value, ast.Attribute)
        if one.value.attr == "saved_tensors" and len(one.targets[0].elts) == len(call.args)
    ]
    of = source.of
    if len(unpacked) != 1 or not {*map(of, call.args)} > {*request.names}:
        return
    ((back, elements, context),) = unpacked
    both = [(of(given), of(taken)) for given, taken in zip(call.args, elements, strict=True)]
    saved = [pair for pair in both if pair[0] not in request.names]
    kept = [pair for pair in both if pair[0] in request.names]
    here = (f"{of(call.func.value)}.{one} = {one}" for one, _ in kept)
    there = (f"{taken} = {of(context)}.{one}" for one, taken in kept)
    taken = ", ".join(one for _, one in saved) + ("," if len(saved) == 1 else "")
    yield [
        source.replaced(call, f"{of(call.func)}({', '.join(one for one, _ in saved)})"),
        *after(source, culprit.statement, *here),
        source.replaced(back.targets[0], f"({taken})" if len(saved) == 1 else taken),
        *after(source, back, *there),
    ]


def average_written(culprit: Culprit, request: ask.WriteAverage) -> Ways:
    """`t.copy_(tau * p + (1 - tau) * t)` for `t = tau * p + (1 - tau) * t`, and
    `t.data.copy_(...)` of one that requires a gradient."""
    of = culprit.source.of
    match made := culprit.statement:
        case ast.Assign([ast.Name() | ast.Subscript() | ast.Attribute() as target], value):
            if of(target) in map(of, parts(value, ast.expr)):
                holder = f"{of(target)}{'' if request.may_write else '.data'}"
                yield [culprit.source.replaced(made, f"{holder}.copy_({of(value)})")]
