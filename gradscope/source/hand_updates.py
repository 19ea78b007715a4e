"""What a statement writes into, and updates that a program writes by hand: `w -= 0.1 * w.grad`,
`w.add_(w.grad, alpha=-lr)`, there or in an optimizer of its own."""

import ast
from collections.abc import Iterator

from gradscope.facts import Location
from gradscope.source.arguments import called, is_in_place
from gradscope.source.literals import number
from gradscope.source.spans import ancestors
from gradscope.source.text import Source, parsed
from gradscope.source.tree import covers, names_in

Holder = ast.Name | ast.Attribute
# Methods that give a new tensor.
_STEPS = frozenset("add addcdiv addcmul lerp sub subtract".split())


def written(source: Source, node: ast.AST | None) -> ast.expr | None:
    """The expression that a statement, a call or a target writes into."""
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Assign):
        return node.targets[0]
    if isinstance(node, ast.Expr):
        return written(source, node.value)
    if isinstance(node, ast.Call):
        is_function = (source.names.dotted(node.func) or "").startswith("torch.")
        if is_function or not isinstance(node.func, ast.Attribute):
            return node.args[0] if node.args else None
        return node.func.value
    return node if isinstance(node, ast.expr) else None


def holder_of(target: ast.expr | None) -> Holder | None:
    """The variable behind `x[:, 0]`, `x[0].view(-1)`, `x.data`."""
    while True:
        if isinstance(target, ast.Subscript):
            target = target.value
        elif isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            target = target.func.value
        else:
            return target if isinstance(target, Holder) else None


def is_write(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement writes into a tensor, by how it is spelled: `x += y`, `x[0] = y`,
    `x.fill_(y)`."""
    if isinstance(statement, ast.AugAssign):
        return True
    if isinstance(statement, ast.Assign):
        return isinstance(statement.targets[0], ast.Subscript)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and is_in_place(call)


def in_place_of(source: Source, statement: ast.stmt) -> str:
    """An assignment `w = w - step` to a leaf, with its gradient, or to the name that a loop has for
    it, as one that writes into it, and so a step that is given to nobody, as in the line
    `w.add(step)`; empty for any other statement."""
    if (call := _dropped_step(source, statement)) is not None:
        end = source.extent(call.func)[1]
        start, past = source.extent(call)
        return f"{source.text[start:end]}_{source.text[end:past]}"
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.BinOp):
        return ""
    value, name = statement.value, source.of(statement.targets[0])
    reads = (source.of(one) for one in ast.walk(value.right) if isinstance(one, Holder))
    sign = {ast.Sub: "-=", ast.Add: "+="}.get(type(value.op))
    is_leaf = f"{name}.grad" in reads or any(_loops_over(source, statement, name))
    is_step = is_leaf and source.of(value.left) in (name, f"{name}.data", f"{name}.detach()")
    return f"{name} {sign} {source.of(value.right)}" if is_step and sign else ""


def _dropped_step(source: Source, statement: ast.stmt) -> ast.Call | None:
    """`p.add(step)`, of what a loop goes over, as a line of its own."""
    match statement:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) as call
        ) if attr in _STEPS and any(_loops_over(source, statement, name)):
            return call
    return None


def _loops_over(source: Source, statement: ast.stmt, name: str) -> Iterator[ast.For]:
    """The loops around a statement that give the name its value."""
    for one in ancestors(source, statement):
        if isinstance(one, ast.For) and name in names_in(one.target):
            yield one


def is_lost(place: Location) -> bool:
    """Whether a statement at `place` gives a new tensor to nobody, or to the name alone that a loop
    has for a parameter, and the loop does nothing with that: `for p in model.parameters(): p = p -
    p.grad`."""
    text = parsed(place.file)
    if text is None:
        return False
    alone = (one for one in text.nodes.every(ast.Expr) if covers(one, place.line))
    if any(_dropped_step(text, one) for one in alone):
        return True
    for made in text.nodes.every(ast.Assign):
        target = made.targets[0]
        if not covers(made, place.line) or not isinstance(target, ast.Name):
            continue
        of_it = [*_loops_over(text, made, target.id)]
        are_read = any(
            covers(loop, read.lineno)
            and read.lineno > (made.end_lineno or made.lineno)
            and getattr(text.parents[read], "attr", "") != "grad"
            for loop in of_it
            for read in text.nodes.reads(target)
        )
        return bool(of_it) and not are_read and bool(in_place_of(text, made))
    return False


def rate_by_hand(text: Source, place: Location) -> ast.Constant | None:
    """The outermost factor of an update that is a number, or a name for one."""
    around = [
        node
        for node in ast.walk(text.tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and covers(node, place.line)
    ]
    products = [product for node in around for product in _products(node)]
    own = frozenset(name for node in around for name in _own(text, node))
    of_gradient = [one for one in products if any(_signs(text, part, own) for part in one)]
    factors = (factor for product in of_gradient or products for factor in product)
    numbers = (number(text, factor) for factor in factors)
    return next((one for one in numbers if one is not None), None)


def ascent(text: Source, place: Location, optimizer: str) -> ast.AugAssign | ast.keyword | None:
    """Where an update adds the gradient, by hand at `place` or in the program's own optimizer of
    that name: the `w += lr * w.grad`, or the `alpha` of an `add_`. None unless there is one."""
    within = [node for node in ast.walk(text.tree) if _updates(node, place, optimizer)]
    found = [
        one for around in within for node in ast.walk(around) for one in _additions(text, node)
    ]
    return found[0] if len(found) == 1 else None


def _updates(node: ast.AST, place: Location, optimizer: str) -> bool:
    """Whether this is the optimizer's class, or the statement that updates by hand."""
    if optimizer:
        return isinstance(node, ast.ClassDef) and node.name == optimizer
    return isinstance(node, ast.AugAssign | ast.Expr) and node.lineno == place.line


def _additions(text: Source, node: ast.AST) -> Iterator[ast.AugAssign | ast.keyword]:
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        if _signs(text, node.value, _own(text, node)) == {1}:
            yield node
    if isinstance(node, ast.Call) and called(node) == "add_" and node.args:
        for keyword in node.keywords:
            is_added = keyword.arg == "alpha" and not _is_negative(keyword.value)
            if is_added and _signs(text, node.args[0], _own(text, node)) == {1}:
                yield keyword


def _products(update: ast.stmt) -> Iterator[list[ast.expr]]:
    for node in ast.walk(update):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield _factors(node)
        elif isinstance(node, ast.Call) and node.args:
            yield from ([key.value, node.args[0]] for key in node.keywords if key.arg == "alpha")


def _factors(node: ast.expr) -> list[ast.expr]:
    """Those with a name first: of `2 * lr * g` that is the rate."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        both = _factors(node.left) + _factors(node.right)
        return sorted(both, key=lambda one: not isinstance(one, ast.Name))
    return [node]


def _own(text: Source, update: ast.AST) -> frozenset[str]:
    """The names of what an update writes into: that they are made of gradients says nothing."""
    target = written(text, update)
    return frozenset(names_in(target)) if target is not None else frozenset()


def _signs(text: Source, node: ast.AST, met: frozenset[str]) -> set[int]:
    """The signs with which a `.grad`, or what `torch.autograd.grad` gives, enters an expression,
    also through names but those that were `met`; empty where none does."""
    if isinstance(node, ast.Attribute) and node.attr == "grad":
        return {1}
    if isinstance(node, ast.Call) and text.names.dotted(node.func) == "torch.autograd.grad":
        return {1}
    if isinstance(node, ast.Name):
        if node.id in met:
            return set()
        made = text.nodes.owner(node).bindings.get(node.id, ())
        given = [part for one in made if (part := _given(one.statement)) is not None]
        return {one for part in given for one in _signs(text, part, met | {node.id})}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return _signs(text, node.left, met) | {-one for one in _signs(text, node.right, met)}
    found = [(part, _signs(text, part, met)) for part in ast.iter_child_nodes(node)]
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)
    is_turned = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    if is_product or (isinstance(node, ast.Call) and called(node) in ("mul", "mul_")):
        is_turned = sum(not signs and _is_negative(part) for part, signs in found) % 2 == 1
    return {-one if is_turned else one for _, signs in found for one in signs}


def _is_negative(node: ast.AST) -> bool:
    """Whether a minus stands before it: of a product, before an odd number of factors."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return not _is_negative(node.operand)
    if not isinstance(node, ast.BinOp):
        return False
    is_product = isinstance(node.op, ast.Mult | ast.Div)
    return _is_negative(node.left) != (is_product and _is_negative(node.right))


def _given(statement: ast.stmt) -> ast.expr | None:
    """What a statement gives its names, or goes over."""
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return statement.value
    return statement.iter if isinstance(statement, ast.For) else None
