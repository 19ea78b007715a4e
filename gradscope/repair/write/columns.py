"""What is read in the place of the tensor that is differentiated by: that tensor where a call is
given another, and its views, put together again, where something else reads the whole of it."""

import ast
from collections.abc import Iterator
from itertools import pairwise

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Edits, Ways
from gradscope.source import Source
from gradscope.source.arguments import spelled
from gradscope.source.tree import assigned, parts

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
