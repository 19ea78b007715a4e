"""A custom backward's gradient, corrected by the relation found between it and the truth, or as
autograd differentiates the forward."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.facts import Compared, Edit, SavedInstead
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import ATOMS, Candidate, Culprit, Ways
from gradscope.repair.write.reading import factor
from gradscope.repair.write.statements import body_of, last_returned
from gradscope.repair.write.uses import method_of
from gradscope.source import Source
from gradscope.source.arguments import called
from gradscope.source.spans import alike
from gradscope.source.tree import covers, last_name, names_in, parts

# What spreads one number over all elements, and what had made one number of them.
_SPREADS = ("expand", "expand_as", "repeat", "reshape", "view")
_MEANS = ("mean", "sum")
# What gives a tensor of its own, and never the one that it is called on.
_ANEW = ("add", "alias", "clone", "div", "expand_as", "mul", "sub", "view", "view_as")


def corrected(culprit: Culprit, request: ask.Rewrite) -> Ways:
    """By what is known of the mistake; without a way that it tells, or that holds, by autograd."""
    yield from _by_relation(culprit, request)
    yield from _differentiated(culprit)


def by_autograd(culprit: Culprit, request: ask.DifferentiateForward) -> Ways:
    """Where the finding lies in the backward of a custom Function."""
    backward, location = _method(culprit, "backward"), culprit.finding.location
    if backward is None or location is None or not covers(backward, location.line):
        return
    bases = getattr(culprit.source.parents[backward], "bases", ())
    if "torch.autograd.Function" in map(culprit.dotted, bases):
        yield from _differentiated(culprit)


def _by_relation(culprit: Culprit, request: ask.Rewrite) -> Ways:
    """The slips mended, the right tensor saved, or the expression that computes the gradient by its
    template; without one, kept to where the forward is not cut off."""
    if request.saved is not None:
        yield from _saved(culprit, request.saved)
        yield from _made_again(culprit, request.saved, request.position)
    if request.slips:
        spots = [(one.at, one.text) for one in request.slips]
        yield [
            Edit(at.file, at.line, at.col, at.end_line, at.end_col, text)
            for at, text in spots
            if at.file == culprit.source.file
        ]
        return
    template, node = request.template, _computed(culprit, request.position)
    if node is None:
        return
    if template is None:
        if request.wrong_where is not None:
            yield from _bounded(culprit, node, request.wrong_where)
        return
    where = culprit.source.nodes.function(node)
    arguments = [one.arg for one in where.args.args] if isinstance(where, ast.FunctionDef) else []
    elementwise = _without_mean(culprit, node)
    if "{elementwise}" in template and elementwise is None:
        return
    text = template.format(
        returned=_as_operand(culprit.source.of(node), template, "{returned}"),
        elementwise=_as_operand(elementwise or "", template, "{elementwise}"),
        grad_output=arguments[1] if len(arguments) > 1 else "grad_output",
    )
    yield Candidate(f"compute `{text}`", (culprit.source.replaced(node, text),))


def _saved(culprit: Culprit, request: SavedInstead) -> Iterator[Candidate]:
    """`ctx.save_for_backward(x)` with the tensor that backward needs in the place of the one that
    it gets."""
    was, needed, forward = request.was, request.needed, _method(culprit, "forward")
    if forward is None:
        return
    if request.is_output:
        returned = last_returned(forward)
        needed = returned.id if isinstance(returned, ast.Name) else ""
    for given in (one for saved in _saves(forward) for one in saved):
        if needed.isidentifier() and isinstance(given, ast.Name) and given.id == was:
            yield culprit.written(f"save `{needed}`, not `{was}`", given, needed)


def _saves(forward: ast.FunctionDef) -> list[list[ast.expr]]:
    """The arguments of each `save_for_backward`."""
    calls = parts(forward, ast.Call)
    return [one.args for one in calls if called(one) == "save_for_backward"]


def _made_again(culprit: Culprit, request: SavedInstead, position: int) -> Iterator[Candidate]:
    """`x * s` for `x` in backward, where forward returns that product of what it saves."""
    source, node = culprit.source, _computed(culprit, position)
    forward, backward = _method(culprit, "forward"), _method(culprit, "backward")
    if forward is None or backward is None or node is None or not request.is_output:
        return
    returned, names = last_returned(forward), _handed_over(forward, backward)
    if returned is None or request.was not in names:
        return
    own = [one for one in parts(returned, ast.Name) if one.id not in culprit.names.imported]
    if isinstance(returned, ast.Name) or not all(one.id in names for one in own):
        return
    made = source.written(returned, {one: names[one.id] for one in own})
    wrong = (one for one in parts(node, ast.Name) if one.id == names[request.was])
    edits = [culprit.replace(one, made) for one in wrong]
    if "\n" not in made:
        yield Candidate(f"compute the output again: `{made}`, not `{request.was}`", tuple(edits))


def _handed_over(forward: ast.FunctionDef, backward: ast.FunctionDef) -> dict[str, str]:
    """The names of what forward saves, each with the one that backward gives it."""
    saved = _saves(forward)
    for made in parts(backward, ast.Assign):
        is_given = isinstance(made.value, ast.Attribute) and made.value.attr == "saved_tensors"
        if not is_given or len(saved) != 1:
            continue
        (target,) = made.targets
        if isinstance(target, ast.Tuple) and len(target.elts) == len(saved[0]):
            both = zip(saved[0], target.elts, strict=True)
            pairs = [p for p in both if all(isinstance(one, ast.Name) for one in p)]
            return {last_name(one): last_name(other) for one, other in pairs}
    return {}


def hooked(culprit: Culprit, request: ask.HookBackward) -> Ways:
    """A hook on what a forward returns, which passes its input on. On a tensor of its own: others
    that read the input have other gradients."""
    source, forward, own = culprit.source, _method(culprit, "forward"), _method(culprit, "backward")
    returns = [*parts(forward, ast.Return)]
    if forward is None or own is None or len(returns) != 1 or not request.own.passes_on:
        return
    value = returns[0].value
    required = len(own.args.args) - len(own.args.defaults)
    is_bound = not any(last_name(one) == "staticmethod" for one in own.decorator_list)
    if value is None or isinstance(value, ast.Tuple | ast.List | ast.Dict):
        return
    if required != 1 + is_bound or own.args.kwonlyargs or not forward.args.args:
        return
    self_, text = forward.args.args[0].arg, source.of(value)
    made = [f"out = {text}"]
    if isinstance(value, ast.Name):
        made = [f"out = {text}.view_as({text})"]
    elif not isinstance(value, ast.BinOp) and last_name(getattr(value, "func", None)) not in _ANEW:
        made += ["out = out.view_as(out)"]
    indent = f"{source.newline}{source.indent(returns[0].lineno)}"
    lines = (*made, "if out.requires_grad:", f"    out.register_hook({self_}.backward)")
    edit = source.replaced(returns[0], indent.join((*lines, "return out")))
    yield Candidate("call it by a hook on the result", (edit,))


def _method(culprit: Culprit, name: str) -> ast.FunctionDef | None:
    """The method of a name in the class in which the finding is."""
    location = culprit.finding.location
    for node in culprit.source.nodes.every(ast.ClassDef):
        if location is not None and covers(node, location.line):
            return method_of(node, name)
    return None


def _bounded(culprit: Culprit, formula: ast.expr, wrong_where: Compared) -> Iterator[Candidate]:
    """`g * (x <= 6)` where the gradient is wrong for x > 6; 0 in `g[x > 6] = ...`."""
    opposite = {">": "<=", "<": ">="}.get(wrong_where.sign)
    if opposite is None or not wrong_where.is_name:
        return
    bound, made = f"{wrong_where.bound:.4g}", culprit.source.parents[formula]
    target = made.targets[0] if isinstance(made, ast.Assign) else None
    if isinstance(target, ast.Subscript):
        # The bound itself may be right by chance.
        signs = wrong_where.sign, f"{wrong_where.sign}="
        texts = (f"{wrong_where.name} {sign} {bound}" for sign in signs)
        if any(alike(target.slice, ast.parse(one, mode="eval").body) for one in texts):
            title = f"let the gradient be 0 where `{culprit.source.of(target.slice)}`"
            yield Candidate(title, (culprit.source.replaced(formula, "0"),))
        return
    text = f"{factor(culprit.source.of(formula))} * ({wrong_where.name} {opposite} {bound})"
    yield Candidate(f"compute `{text}`", (culprit.source.replaced(formula, text),))


def _computed(culprit: Culprit, position: int) -> ast.expr | None:
    """The expression at the finding's place: what backward returns, or what it assigned before. Of
    several that are returned that in the position, or the last where there are fewer. Where the
    place writes into a tensor, what is returned of it."""
    location = culprit.finding.location
    if location is None:
        return None
    for node in ast.walk(culprit.source.tree):
        if not isinstance(node, ast.Return | ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if not covers(node, location.line):
            continue
        value = node.value
        if isinstance(node, ast.Return) and isinstance(value, ast.Tuple):
            return next(iter((*value.elts[position:], *value.elts[-1:])), None)
        return value
    return _returned_at(culprit, position)


def _as_operand(text: str, template: str, slot: str) -> str:
    """A text as it stands in the template: products go on without parentheses."""
    node = ast.parse(text, mode="eval").body if text else None
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)
    is_signed = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Name | ast.Constant)
    goes_on = (is_product or is_signed) and not template.partition(slot)[2].startswith(".")
    return text if template == slot or goes_on or isinstance(node, ATOMS) else f"({text})"


def _without_mean(culprit: Culprit, node: ast.expr) -> str | None:
    """The text of an expression without the one mean (or sum) in it, and what spreads that again:
    `2 * e` of `2 * e.mean().expand_as(x)`. None where there is none, or several."""
    averaged = {one: _averaged(one) for one in parts(node, ast.expr)}
    chains = [one for one, inner in averaged.items() if inner is not None]
    inside = {below for one in chains for below in ast.walk(one) if below is not one}
    outer = [one for one in chains if one not in inside]
    inner = averaged[outer[0]] if len(outer) == 1 else None
    if inner is None:
        return None
    kept = culprit.source.of(inner) if outer[0] is node else culprit.text(inner)
    return culprit.source.written(node, {outer[0]: kept})


def _averaged(node: ast.expr) -> ast.expr | None:
    """`e` of `e.mean().expand_as(x)` and of `torch.mean(e)`."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("torch"), name), args) if name in _MEANS:
            return args[0] if args else None
        case ast.Call(ast.Attribute(owner, name)) if name in _MEANS:
            return owner
        case ast.Call(ast.Attribute(owner, name)) if name in _SPREADS:
            return _averaged(owner)
    return None


def exchanged(culprit: Culprit, request: ask.Exchange) -> Iterator[Candidate]:
    """Two entries of the returned tuple change places."""
    first, second = _returned_at(culprit, request.one), _returned_at(culprit, request.other)
    if first is None or second is None:
        return
    of, replaced = culprit.source.of, culprit.source.replaced
    edits = replaced(first, of(second)), replaced(second, of(first))
    yield Candidate(f"swap `{of(first)}` and `{of(second)}`", edits)


def _returned_at(culprit: Culprit, position: int) -> ast.expr | None:
    """The last return of the function around the finding, at one place of its tuple."""
    location = culprit.finding.location
    functions = culprit.source.nodes.every(ast.FunctionDef)
    around = [one for one in functions if location is not None and covers(one, location.line)]
    inner = max(around, key=lambda node: node.lineno, default=None)
    last = max(parts(inner, ast.Return), key=lambda node: node.lineno, default=None)
    value = last.value if last is not None else None
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    return values[position] if position < len(values) else None


# What ends a graph, or changes what it reads: what autograd gives of such a forward is another one.
_CUTS = frozenset("data detach detach_ item numpy tolist mark_dirty no_grad".split())
_CUTS |= {"round", "sign", "floor", "ceil", "trunc"}


@dataclass(frozen=True, slots=True)
class _Forward:
    """`inputs` without the context; `saves` is the call that saves tensors, those of the names
    `saved`, and `kept` are the other names that reach backward, each with what it is there. `lines`
    compute `result` of what they read."""

    inputs: tuple[str, ...]
    saves: ast.Call | None
    saved: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    result: str
    reads: frozenset[str]


def _differentiated(culprit: Culprit) -> Iterator[Candidate]:
    """The body of backward, which computes the forward anew and has autograd differentiate it.
    Forward saves what that needs."""
    forward, backward = _method(culprit, "forward"), _method(culprit, "backward")
    if forward is None or backward is None:
        return
    source, arguments = culprit.source, [one.arg for one in backward.args.args]
    read, body = _read(source, forward), body_of(backward)
    if read is None or len(arguments) != 2 or not body:
        return
    known = {*read.saved, *(name for name, _ in read.kept)}
    tensors = [name for name in _tensors(backward, read) if name in read.reads]
    missing = {name for name in read.inputs if name in read.reads - known}
    wanted = [name for name in tensors if name in {*read.saved, *missing}]
    if not wanted or not missing <= {*wanted} or (missing and read.saves is None):
        return
    saved, edits = read.saved, list[Edit]()
    if missing and read.saves is not None:
        saved = tuple(one for one in read.inputs if one in read.reads & {*read.saved, *missing})
        function = source.of(read.saves.func)
        edits.append(source.replaced(read.saves, f"{function}({', '.join(saved)})"))
    ctx, grad = arguments
    names = f"({saved[0]},)" if len(saved) == 1 else ", ".join(saved)
    lines = [f"{names} = {ctx}.saved_tensors"]
    lines += [f"{name} = {ctx}.{held}" for name, held in read.kept if name in read.reads]
    lines += [culprit.torch("with torch.enable_grad():")]
    lines += [f"    {name} = {name}.detach().requires_grad_()" for name in wanted]
    lines += [f"    {line}" for line in (*read.lines, f"out = {read.result}")]
    given = wanted[0] if len(wanted) == 1 else f"({', '.join(wanted)})"
    grads = culprit.torch(f"torch.autograd.grad(out, {given}, {grad})")
    places = {wanted[0]: f"{grads}[0]"}
    if len(wanted) > 1:
        lines.append(f"grads = {grads}")
        places = {name: f"grads[{at}]" for at, name in enumerate(wanted)}
    lines.append(f"return {', '.join(places.get(name, 'None') for name in read.inputs)}")
    start, past = source.extent(body[0])[0], source.extent(body[-1])[1]
    text = f"{source.newline}{source.indent(body[0].lineno)}".join(lines)
    edits.append(source.edit(start, past, text))
    yield Candidate("let autograd differentiate the forward", tuple(edits), alone=True)


def _tensors(backward: ast.FunctionDef, read: _Forward) -> Iterator[str]:
    """The inputs that get a gradient: not those for which backward returns None."""
    value = last_returned(backward)
    given = value.elts if isinstance(value, ast.Tuple) else [value]
    for at, name in enumerate(read.inputs):
        one = given[at] if at < len(given) else None
        if not (isinstance(one, ast.Constant) and one.value is None):
            yield name


def _read(source: Source, forward: ast.FunctionDef) -> _Forward | None:
    """None where it does what no graph shows, or has other results than one."""
    ctx, *inputs = [one.arg for one in forward.args.args] or [""]
    saves: ast.Call | None = None
    kept: list[tuple[str, str]] = []
    computed: list[ast.stmt | ast.expr] = []  # the statements, and the result
    *before, last = body_of(forward) or [ast.Pass()]
    for one in before:
        match one:
            case ast.Expr(value=ast.Call() as call) if called(call) == "save_for_backward":
                if saves is not None:
                    return None
                saves = call
            case ast.Assign() if source.of(one.targets[0]).startswith(f"{ctx}."):
                held = source.of(one.targets[0]).removeprefix(f"{ctx}.")
                kept.append((source.of(one.value), held))
            case _:
                computed.append(one)
    returned = last.value if isinstance(last, ast.Return) else None
    if returned is None or isinstance(returned, ast.Tuple):
        return None
    computed.append(returned)
    inside = [part for one in computed for part in ast.walk(one)]
    reads = frozenset[str]().union(*map(names_in, computed))
    saved = [source.of(given) for given in saves.args] if saves is not None else []
    names = [*saved, *(name for name, _ in kept)]
    own = (part for part in inside if isinstance(part, ast.Name))
    made = {one.id for one in own if isinstance(one.ctx, ast.Store)}
    is_cut = any(last_name(part) in _CUTS or isinstance(part, ast.Return) for part in inside)
    if is_cut or ctx in reads or made & {*inputs} or not all(map(str.isidentifier, names)):
        return None
    # What goes on in further lines is as deep there, but for the block that it stands in.
    *lines, result = (source.of(one).replace("\n", "\n    ") for one in computed)
    return _Forward(tuple(inputs), saves, tuple(saved), tuple(kept), tuple(lines), result, reads)
