"""The backward of a custom Function, as autograd differentiates its forward."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.source import Source
from gradscope.source.arguments import called

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

    def reads(self, name: str) -> bool:
        text = "\n".join((*self.lines, self.result))
        return any(
            isinstance(one, ast.Name) and one.id == name for one in ast.walk(ast.parse(text))
        )


def differentiated(
    culprit: Culprit, forward: ast.FunctionDef, backward: ast.FunctionDef
) -> Iterator[Candidate]:
    """The body of backward, which computes the forward anew and has autograd differentiate it."""
    source, arguments = culprit.source, [one.arg for one in backward.args.args]
    read = _read(source, forward)
    if read is None or len(arguments) != 2:
        return
    wanted = [name for name in _wanted(backward, read) if read.reads(name)]
    if not wanted or not {*wanted} <= {*read.saved}:
        return
    ctx, grad = arguments
    comma = "," if len(read.saved) == 1 else ""
    names = ", ".join(read.saved)
    lines = [f"{f'({names}{comma})' if comma else names} = {ctx}.saved_tensors"]
    lines += [f"{name} = {ctx}.{held}" for name, held in read.kept if read.reads(name)]
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
    body = [one for one in backward.body if not _is_docstring(one)]
    start, past = source.extent(body[0])[0], source.extent(body[-1])[1]
    text = f"{source.newline}{source.indent(body[0].lineno)}".join(lines)
    yield Candidate(
        "let autograd differentiate the forward", (source.edit(start, past, text),), alone=True
    )


def _wanted(backward: ast.FunctionDef, read: _Forward) -> Iterator[str]:
    """The inputs that get a gradient: not those for which backward returns None."""
    returns = [one.value for one in ast.walk(backward) if isinstance(one, ast.Return)]
    value = returns[-1] if returns else None
    given = value.elts if isinstance(value, ast.Tuple) else [value]
    for at, name in enumerate(read.inputs):
        one = given[at] if at < len(given) else None
        is_none = isinstance(one, ast.Constant) and one.value is None
        if name in read.saved and not is_none:
            yield name


def _read(source: Source, forward: ast.FunctionDef) -> _Forward | None:
    """None where it is more than assignments and one result, or does what no graph shows."""
    ctx, *inputs = (one.arg for one in forward.args.args)
    saved: list[str] = []
    kept: list[tuple[str, str]] = []
    lines: list[str] = []
    *before, last = (one for one in forward.body if not _is_docstring(one))
    for one in before:
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
            if called(one.value) != "save_for_backward" or saved:
                return None
            saved = [source.of(given) for given in one.value.args]
        elif isinstance(one, ast.Assign) and source.of(one.targets[0]).startswith(f"{ctx}."):
            held = source.of(one.targets[0]).removeprefix(f"{ctx}.")
            kept.append((source.of(one.value), held))
        elif isinstance(one, ast.Assign) and "\n" not in source.of(one):
            lines.append(source.of(one))
        else:
            return None
    result = source.of(last.value) if isinstance(last, ast.Return) and last.value else ""
    names = [*saved, *(name for name, _ in kept)]
    if not result or "\n" in result or not all(map(str.isidentifier, names)):
        return None
    made = _Forward(tuple(inputs), tuple(saved), tuple(kept), tuple(lines), result)
    parts = [*ast.walk(forward)]
    cuts = (getattr(one, "attr", getattr(one, "id", "")) in _CUTS for one in parts)
    missing = [name for name in inputs if made.reads(name) and name not in names]
    return (
        None
        if missing or any(cuts) or isinstance(getattr(last, "value", None), ast.Tuple)
        else made
    )


def _is_docstring(one: ast.stmt) -> bool:
    return isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
