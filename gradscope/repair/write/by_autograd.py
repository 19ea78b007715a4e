"""The backward of a custom Function, as autograd differentiates its forward."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.statements import body_of, last_returned
from gradscope.source import Source
from gradscope.source.arguments import called
from gradscope.source.tree import last_name, names_in

# What ends a graph, or changes what it reads: what autograd gives of such a forward is another one.
_CUTS = frozenset("data detach detach_ item numpy tolist mark_dirty no_grad round sign".split())


@dataclass(frozen=True, slots=True)
class _Forward:
    """`inputs` without the context; `kept` are the names that reach backward, each with what it is
    there, `saved` those of them that are saved as tensors, in order. `lines` compute `result`."""

    inputs: tuple[str, ...]
    saved: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    result: str
    reads: frozenset[str]  # the names that these read


def differentiated(
    culprit: Culprit, forward: ast.FunctionDef, backward: ast.FunctionDef
) -> Iterator[Candidate]:
    """The body of backward, which computes the forward anew and has autograd differentiate it."""
    source, arguments = culprit.source, [one.arg for one in backward.args.args]
    read, body = _read(source, forward), body_of(backward)
    if read is None or len(arguments) != 2 or not body:
        return
    wanted = [name for name in _wanted(backward, read) if name in read.reads]
    if not wanted:
        return
    ctx, grad = arguments
    names = f"({read.saved[0]},)" if len(read.saved) == 1 else ", ".join(read.saved)
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
    yield Candidate(
        "let autograd differentiate the forward", (source.edit(start, past, text),), alone=True
    )


def _wanted(backward: ast.FunctionDef, read: _Forward) -> Iterator[str]:
    """The inputs that get a gradient: not those for which backward returns None."""
    value = last_returned(backward)
    given = value.elts if isinstance(value, ast.Tuple) else [value]
    for at, name in enumerate(read.inputs):
        one = given[at] if at < len(given) else None
        is_none = isinstance(one, ast.Constant) and one.value is None
        if name in read.saved and not is_none:
            yield name


def _read(source: Source, forward: ast.FunctionDef) -> _Forward | None:
    """None where it is more than assignments and one result, or does what no graph shows."""
    ctx, *inputs = [one.arg for one in forward.args.args] or [""]
    saved: list[str] = []
    kept: list[tuple[str, str]] = []
    computed: list[ast.Assign | ast.expr] = []  # the assignments, and the result
    *before, last = body_of(forward) or [ast.Pass()]
    for one in before:
        match one:
            case ast.Expr(value=ast.Call() as call) if not saved:
                saved = [source.of(given) for given in call.args]
                if called(call) != "save_for_backward":
                    return None
            case ast.Assign() if source.of(one.targets[0]).startswith(f"{ctx}."):
                held = source.of(one.targets[0]).removeprefix(f"{ctx}.")
                kept.append((source.of(one.value), held))
            case ast.Assign():
                computed.append(one)
            case _:
                return None
    returned = last.value if isinstance(last, ast.Return) else None
    if returned is None or isinstance(returned, ast.Tuple):
        return None
    computed.append(returned)
    texts = [source.of(one) for one in computed]
    reads = frozenset[str]().union(*map(names_in, computed))
    names = [*saved, *(name for name, _ in kept)]
    cuts = (last_name(part) in _CUTS for one in computed for part in ast.walk(one))
    is_whole = reads & {*inputs} <= {*names} and all(map(str.isidentifier, names))
    if any("\n" in text for text in texts) or any(cuts) or not is_whole:
        return None
    *lines, result = texts
    return _Forward(tuple(inputs), tuple(saved), tuple(kept), tuple(lines), result, reads)
