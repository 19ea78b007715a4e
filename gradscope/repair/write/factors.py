"""A product of parameters that all start at 0, as in an adapter: those nearer to the input start
from other numbers, and the last one keeps its zeros, so that the product is 0 at first (GS403)."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import ATOMS, Candidate, Culprit
from gradscope.repair.write.initial import RELU, SMALL, Filling, away_from_zero, by_init, filling_of
from gradscope.repair.write.splice import after
from gradscope.repair.write.statements import body_of, left_out
from gradscope.repair.write.uses import Uses
from gradscope.source.spans import ancestors, targets_of
from gradscope.source.tree import parts

_RANDOM = {"torch.zeros": "torch.randn", "torch.zeros_like": "torch.randn_like"}
_KEPT = "let the first factor keep the numbers that its layer gave it, and the other one its zeros"
_DRAWN = "start the first factor from numbers drawn at random, and leave the other one at 0"


def first_alone(culprit: Culprit, request: ask.StartFactors) -> Iterator[Candidate]:
    """Where that cannot be written, as `away_from_zero` has it."""
    found = [_started(culprit, one) for one in request.factors]
    if all(found):
        kept = all(one.drawn for one in request.factors)
        edits = dict.fromkeys(edit for edits in found for edit in edits)
        yield Candidate(_KEPT if kept else _DRAWN, tuple(edits), begins_alike=kept)
    yield from away_from_zero(culprit)


def _started(culprit: Culprit, factor: ask.ZeroFactor) -> tuple[Edit, ...]:
    """Without the line that fills it with 0, where it then has numbers of its own; else drawn."""
    source, node = culprit.source, culprit.at(factor.place)
    if node is None:
        return ()
    made = source.nodes.statement(node)
    filling = filling_of(culprit, node)
    if factor.shared:
        return _one_of_loop(culprit, made, filling, factor) if filling is not None else ()
    if factor.later:
        if factor.drawn and (filling is not None or _does_one_thing(culprit, node)):
            return (left_out(source, made),)
        text = _drawn(culprit, filling.text, factor) if filling is not None else None
        return (culprit.replace(node, text),) if text is not None else ()
    zeros = [one for one in parts(node, ast.Call) if culprit.dotted(one) in _RANDOM]
    if len(zeros) == 1:
        given = source.of(zeros[0]).removeprefix(source.of(zeros[0].func))
        function = culprit.torch(_RANDOM[culprit.dotted(zeros[0])])
        return (culprit.replace(zeros[0], f"0.01 * {function}{given}"),)
    targets = targets_of(source, node) or [node]
    text = _drawn(culprit, source.of(targets[0]), factor)
    return after(source, made, text) if text is not None else ()


def _does_one_thing(culprit: Culprit, node: ast.expr) -> bool:
    """Whether a function of the file is called that does nothing but to fill."""
    callee = Uses(culprit.source).callee(node) if isinstance(node, ast.Call) else None
    return callee is not None and len(body_of(callee)) == 1


def _one_of_loop(
    culprit: Culprit, made: ast.stmt, filling: Filling, factor: ask.ZeroFactor
) -> tuple[Edit, ...]:
    """What `for part in (self.down, self.up):` does to the second of them, without the loop; where
    it does more than to fill, the first one is drawn behind it."""
    source = culprit.source
    loop = next((one for one in ancestors(source, made) if isinstance(one, ast.For)), None)
    if loop is None or not isinstance(loop.target, ast.Name):
        return ()
    match loop.iter:
        case ast.Tuple(elts=[first, other]) | ast.List(elts=[first, other]):
            pass
        case _:
            return ()
    if not factor.earlier:
        first, other = other, first
    text = _drawn(culprit, _of_item(culprit, filling.filled, loop.target.id, first), factor)
    if loop.body == [made] and not loop.orelse:
        lines = [] if factor.drawn else [text]
        lines.append(_of_item(culprit, made, loop.target.id, other))
        if None not in lines:
            new = f"{source.newline}{source.indent(loop.lineno)}".join(filter(None, lines))
            return (source.replaced(loop, new),)
    return after(source, loop, text) if text is not None else ()


def _of_item(culprit: Culprit, node: ast.expr | ast.stmt, name: str, item: ast.expr) -> str:
    """The text of a node in which a name stands for an item."""
    source, start = culprit.source, culprit.source.extent(node)[0]
    text, new = source.of(node), source.of(item)
    new = new if isinstance(item, ATOMS) else f"({new})"
    reads = [source.extent(one) for one in parts(node, ast.Name) if one.id == name]
    for first, end in sorted(reads, reverse=True):
        text = f"{text[: first - start]}{new}{text[end - start :]}"
    return text


def _drawn(culprit: Culprit, text: str, factor: ask.ZeroFactor) -> str | None:
    """A vector has no fan that its size could come of."""
    template, _ = RELU if factor.dims > 1 else SMALL
    return by_init(culprit, template, text.removesuffix(".data"))
