"""The small changes of a backward's own source that give a gradient the shape of its input: summed
to it in the place of other reductions, or viewed in it."""

import ast
import math
from collections.abc import Iterator

from gradscope.dataclass import dataclass
from gradscope.record.probes.changes import Change, reduced
from gradscope.source import Source
from gradscope.source.arguments import spelled
from gradscope.source.spans import parenthesized
from gradscope.source.tree import names_in, parts

_RESHAPES = ("view", "view_as", "reshape", "reshape_as", "flatten", "unsqueeze", "squeeze")
_FOLDS = ("sum", "sum_to_size", *_RESHAPES)


@dataclass(frozen=True, slots=True)
class Resized:
    """A gradient of the shape `got`, the one returned at `position`, where `needed` is; `spelled`
    is that as code, "" where backward holds neither the input nor its shape; `out` the shape of the
    only output."""

    position: int
    got: tuple[int, ...]
    needed: tuple[int, ...]
    spelled: str
    out: tuple[int, ...]

    def summed(self) -> Iterator[str]:
        if self.spelled:
            yield f".sum_to_size({self.spelled})"
        elif len(self.out) == len(self.needed):
            sizes = zip(self.out, self.needed, strict=True)
            dims = tuple(dim for dim, (one, other) in enumerate(sizes) if one != other)
            if dims:
                yield f".sum({dims[0] if len(dims) == 1 else dims}, keepdim=True)"

    def viewed(self) -> Iterator[str]:
        if math.prod(self.got) != math.prod(self.needed):
            return
        tensor = self.spelled.removesuffix(".shape")
        if tensor != self.spelled:
            yield f".view_as({tensor})"
        if self.spelled:
            yield f".reshape({self.spelled})"  # of any strides
        for dim in range(max(len(self.got), len(self.needed))):
            name = "unsqueeze" if len(self.got) < len(self.needed) else "squeeze"
            yield f".{name}({dim})"


def of_shape(source: Source, function: ast.FunctionDef, sized: Resized) -> Iterator[Change]:
    came = [one.arg for one in function.args.args][1:2]
    derived = _derived(function, {*came})
    every = (one for body in function.body for one in ast.walk(body) if isinstance(one, ast.expr))
    nodes = [one for one in every if names_in(one) & derived]
    for node in nodes if came else ():
        yield from reduced(source, node, came[0])
    within = {id(inner) for node in nodes for inner in _folded(source, node)}
    for node in nodes:
        for inner in () if id(node) in within else [*_folded(source, node)][::-1]:
            for end in sized.summed():
                yield from _ending(source, node, inner, end)
    for value in _given(source, function, sized.position):
        for end in (*sized.viewed(), *sized.summed()):
            yield from _ending(source, value, value, end)


def _ending(source: Source, node: ast.expr, inner: ast.expr, text: str) -> Iterator[Change]:
    """A node that is a part of it and a call of a method. Lines stay as they are."""
    start, end = parenthesized(source, inner)
    first, last = min(start, source.extent(node)[0]), max(end, source.extent(node)[1])
    kept = source.text[start:end]
    is_operand = isinstance(inner, _ATOMS) or (start, end) != source.extent(inner)
    if source.newline not in kept:
        yield Change(node, first, last, f"{kept if is_operand else f'({kept})'}{text}")
    elif is_operand and start == first:
        yield Change(node, end, last, text)


def _derived(function: ast.FunctionDef, names: set[str]) -> set[str]:
    """These names, and those of what is computed of them."""
    found = set(names)
    for made in ast.walk(function):
        if isinstance(made, ast.Assign | ast.AugAssign) and names_in(made.value) & found:
            found |= names_in(made)
    return found


_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def _folded(source: Source, node: ast.expr) -> Iterator[ast.expr]:
    """What a chain of sums and views is of, from the outside: `g.sum(0)` and `g` of
    `g.sum(0).view(1)`."""
    call = spelled(source, node)
    while isinstance(node, ast.Call) and call.name in _FOLDS and call.positional:
        node = call.positional[0]
        call = spelled(source, node)
        yield node


def _given(source: Source, function: ast.FunctionDef, position: int) -> Iterator[ast.expr]:
    """What is returned at a position; of a name what it is given, the last first, and itself only
    where it is never None."""
    for returned in parts(function, ast.Return):
        value = returned.value
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        one = values[position] if position < len(values) else None
        made = [
            other.value
            for other in parts(function, ast.Assign)
            if isinstance(one, ast.Name)
            and any(isinstance(to, ast.Name) and to.id == one.id for to in other.targets)
        ]
        yield from (other for other in made[::-1] if not isinstance(other, ast.Constant))
        if one is not None and not any(isinstance(other, ast.Constant) for other in (one, *made)):
            yield one
