"""The lines that nothing reads any more, once an expression is written without what they made."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.logs import OPS
from gradscope.repair.write.splice import past_of
from gradscope.source import binding
from gradscope.source.arguments import DRAWS, spelled


def left_over(culprit: Culprit, node: ast.expr, text: str) -> Iterator[Edit]:
    """The edits that drop the assignments whose names were read in `node` alone, in whose place
    `text` stands now; what they do beside giving a value must be done by the text."""
    source = culprit.source
    kept = {one.id for one in ast.walk(ast.parse(f"({text})")) if isinstance(one, ast.Name)}
    gone: set[ast.AST] = {*ast.walk(node)}
    waiting = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
    while waiting:
        name = waiting.pop()
        given = binding(source, name)
        made = given.statement if given is not None else None
        if not isinstance(made, ast.Assign) or made in gone or name.id in kept:
            continue
        reads = source.nodes.scope(name).owner(name.id)
        is_local = reads is source.nodes.scope(made).function
        if not is_local or len(made.targets) > 1:
            continue
        read = reads.reads[name.id]
        if len(reads.bindings[name.id]) > 1:  # `w = exp(x)`, then `w = w / w.sum()`
            bindings = {one: binding(source, one) for one in read}
            if None in bindings.values():
                continue
            read = [one for one in read if bindings[one] is given]
        if all(one in gone for one in read) and _is_replaced(culprit, made, text):
            gone |= {*ast.walk(made)}
            waiting += [one for one in ast.walk(made.value) if isinstance(one, ast.Name)]
            yield from _dropped(culprit, made)


def _is_replaced(culprit: Culprit, made: ast.Assign, text: str) -> bool:
    """Whether its calls are those of torch, which do nothing else, or stand in the text."""
    calls = (one for one in ast.walk(made.value) if isinstance(one, ast.Call))
    is_name = isinstance(made.targets[0], ast.Name)
    return is_name and all(
        _is_function(culprit, one) or culprit.source.of(one) in text for one in calls
    )


def _is_function(culprit: Culprit, call: ast.Call) -> bool:
    found = spelled(culprit.source, call)
    dotted = culprit.names.dotted(call.func) or ""
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
    if not source.text[start:first].strip() and not source.text[last:end].strip() and len(body) > 1:
        yield source.edit(start, end, "")
