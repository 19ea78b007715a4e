"""The lines that nothing reads any more, once an expression is written without what they made."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.logs import OPS
from gradscope.repair.write.splice import past_of
from gradscope.source import binding
from gradscope.source.arguments import DRAWS, spelled
from gradscope.source.meaning import reads_of
from gradscope.source.tree import names_in, parts


def left_over(culprit: Culprit, node: ast.expr, text: str) -> Iterator[Edit]:
    """The edits that drop the assignments whose names were read in `node` alone, in whose place
    `text` stands now; what they do beside giving a value must be done by the text."""
    source = culprit.source
    kept = names_in(ast.parse(f"({text})"))
    gone: set[ast.AST] = {*ast.walk(node)}
    waiting = [*parts(node, ast.Name)]
    while waiting:
        name = waiting.pop()
        given = binding(source, name)
        made = given.statement if given is not None else None
        if not isinstance(made, ast.Assign) or made in gone or name.id in kept:
            continue
        owner = source.nodes.owner(name)
        if owner is not source.nodes.scope(made).function or len(made.targets) > 1:
            continue
        read: list[ast.Name] | None = source.nodes.reads(name)
        if len(owner.bindings[name.id]) > 1:  # `w = exp(x)`, then `w = w / w.sum()`
            read = reads_of(source, name, made)
        if read is not None and gone.issuperset(read) and _is_replaced(culprit, made, text):
            gone |= {*ast.walk(made)}
            waiting += parts(made.value, ast.Name)
            yield from _dropped(culprit, made)


def _is_replaced(culprit: Culprit, made: ast.Assign, text: str) -> bool:
    """Whether its calls are those of torch, which do nothing else, or stand in the text."""
    return isinstance(made.targets[0], ast.Name) and all(
        _is_function(culprit, one) or culprit.source.of(one) in text
        for one in parts(made.value, ast.Call)
    )


def _is_function(culprit: Culprit, call: ast.Call) -> bool:
    found = spelled(culprit.source, call)
    dotted = culprit.dotted(call)
    is_op = found.method and found.name in OPS
    is_torch = dotted.startswith("torch.") and not dotted.startswith("torch.nn.init")
    drawn = found.name in DRAWS or dotted.endswith("_")
    return bool(found) and (is_op or is_torch) and not drawn


def _dropped(culprit: Culprit, made: ast.Assign) -> Iterator[Edit]:
    """Its lines, where it has them to itself, and another statement stays in its block."""
    source = culprit.source
    start, (first, last) = source.offset(made.lineno, 0), source.extent(made)
    body = getattr(source.parents[made], "body", [])
    end = past_of(source, made)
    before, behind = source.text[start:first].strip(), source.text[last:end].strip()
    # What a comment says of the line goes with it.
    if not before and (not behind or behind.startswith("#")) and len(body) > 1:
        yield source.edit(start, end, "")
