"""Data that is brought to mean 0 and spread 1 where the program gives it a name."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.reading import atom
from gradscope.repair.write.splice import after
from gradscope.repair.write.statements import block_of, enclosing
from gradscope.source import Source
from gradscope.source.spans import statement_at
from gradscope.source.tree import last_name, parts

_LOOPS = (ast.For, ast.While)
_FORMS = (
    ("each column of `{0}`", "({0} - {0}.mean(0)) / {0}.std(0)"),
    ("`{0}`", "({0} - {0}.mean()) / {0}.std()"),
)


def standardised(culprit: Culprit, request: ask.Standardise) -> Iterator[Candidate]:
    """Of each column by itself, else of all numbers together; below what else is computed of them,
    as the targets are."""
    source, made = culprit.source, request.made
    statement = statement_at(source, made.location)
    if not isinstance(statement, ast.Assign) or not made.floats:
        return
    if any(isinstance(one, _LOOPS) for one in enclosing(source, statement)):
        return
    place = _below_others(source, statement, made.name)
    for what, form in _FORMS[0 if made.even else 1 :]:
        name, value = made.name, statement.value
        alone = [source.of(one) for one in statement.targets] == [name]
        if place is statement and alone and isinstance(value, ast.Name | ast.Attribute):
            edits: tuple[Edit, ...] = (culprit.replace(value, form.format(source.of(value))),)
        else:
            edits = after(source, place, f"{name} = {form.format(atom(name))}")
        title = f"bring {what.format(name)} to mean 0 and spread 1, and by the same numbers"
        yield Candidate(f"{title} all else that the model reads", edits)


def _below_others(source: Source, made: ast.Assign, name: str) -> ast.stmt | None:
    """The last statement of the block that computes something else of what has the name there; None
    where that would be changed, as by what is computed elsewhere or later on."""
    own = last_name(ast.parse(name, mode="eval").body)
    reads: list[ast.expr] = [
        one for one in source.nodes.every(ast.Attribute) if one.attr == own and _is_read(one)
    ]
    if "." not in name:
        target = next(one for one in parts(made, ast.Name) if one.id == own and not _is_read(one))
        reads = [*source.nodes.reads(target)]
    block = block_of(source, made)
    below = block[block.index(made) :]
    place: ast.stmt = made
    for one in reads:
        if not _computes(source, one) or one.lineno < made.lineno:
            continue
        statement = source.nodes.statement(one)
        if statement not in below:
            return None
        place = max(place, statement, key=lambda each: each.lineno)
    handed = [one for one in reads if not _computes(source, one) and one.lineno > made.lineno]
    is_late = any(one.lineno <= place.lineno for one in handed if not _asks(source, one))
    return None if is_late else place


def _is_read(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _computes(source: Source, read: ast.expr) -> bool:
    """Whether a read is of the numbers, by an operator or an op, and does not hand them on."""
    above = source.parents[read]
    if isinstance(above, ast.Attribute):
        whole = source.parents[above]
        return isinstance(whole, ast.Call) and above.attr not in _KEEP
    if isinstance(above, ast.Subscript):
        return isinstance(source.parents[above], ast.BinOp)
    if isinstance(above, ast.Call):
        return (source.names.dotted(above.func) or "").startswith("torch.") and not any(
            one.id[:1].isupper() for one in parts(above.func, ast.Name)
        )
    return isinstance(above, ast.BinOp | ast.UnaryOp | ast.Compare)


_KEEP = frozenset("size dim numel split chunk to cuda cpu detach clone contiguous".split())


def _asks(source: Source, read: ast.expr) -> bool:
    """Whether a read is of the shape alone: `len(x)`, `x.shape[0]`."""
    above = source.parents[read]
    is_len = isinstance(above, ast.Call) and last_name(above.func) == "len"
    return is_len or (isinstance(above, ast.Attribute) and above.attr in ("shape", "size", "dtype"))
