"""A product of parameters that all start at 0, as in an adapter: those nearer to the input start
from other numbers, and the last one keeps its zeros, so that the product is 0 at first. So of
several layers in a row, which one call or one loop has filled (GS403)."""

import ast
import re
from collections.abc import Iterator, Sequence

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.initial import RELU, SMALL, Filling, away_from_zero, by_init, filling_of
from gradscope.repair.write.parameters import HOLDERS
from gradscope.repair.write.splice import after
from gradscope.repair.write.statements import body_of, enclosing, left_out
from gradscope.repair.write.uses import Uses
from gradscope.source import Source
from gradscope.source.arguments import called
from gradscope.source.spans import ancestors, targets_of
from gradscope.source.tree import last_name, parts

_RANDOM = {"torch.zeros": "torch.randn", "torch.zeros_like": "torch.randn_like"}
_KEPT = "let the first factor keep the numbers that its layer gave it, and the other one its zeros"
_DRAWN = "start the first factor from numbers drawn at random, and leave the other one at 0"
_LAST = "start the last of these layers alone at 0, and let the others keep their numbers"
_OF_PARTS = ("parameters", "named_parameters", "modules", "named_modules")
_OF_LAYERS = ("children", "named_children")
_Loop = ast.For | ast.comprehension


def first_alone(culprit: Culprit, request: ask.StartFactors) -> Iterator[Candidate]:
    """Where that cannot be written, as `away_from_zero` has it."""
    found = [_started(culprit, one) for one in request.factors]
    if all(found):
        kept = all(one.drawn for one in request.factors)
        edits = dict.fromkeys(edit for edits in found for edit in edits)
        title = _LAST if any(one.shared for one in request.factors) else _KEPT
        yield Candidate(title if kept else _DRAWN, tuple(edits), begins_alike=kept)
    yield from away_from_zero(culprit)


def _started(culprit: Culprit, factor: ask.ZeroFactor) -> tuple[Edit, ...]:
    """Without the line that fills it with 0, where it then has numbers of its own; else drawn."""
    source, node = culprit.source, culprit.at(factor.place)
    if node is None:
        return ()
    made = source.nodes.statement(node)
    filling = filling_of(culprit, node)
    if factor.shared and factor.all:
        return _given_last(culprit, node, factor.last) if factor.drawn else ()
    if factor.shared:
        narrowed = _over_last(culprit, node, factor) if factor.drawn else ()
        return narrowed or _one_of_loop(culprit, made, filling, factor)
    if factor.later:
        if factor.drawn and (filling is not None or _only_fills(culprit, node)):
            if isinstance(source.parents[node], ast.Expr):
                return (left_out(source, made),)
            kept = _given_to(node)
            return (culprit.replace(node, source.of(kept)),) if kept is not None else ()
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


def _only_fills(culprit: Culprit, node: ast.expr) -> bool:
    """Whether a function of the file is called that does nothing but to fill."""
    callee = Uses(culprit.source).callee(node) if isinstance(node, ast.Call) else None
    if callee is None:
        return False
    body = body_of(callee)
    plain = (one for each in body for one in _plain(each) if not isinstance(one, ast.Return))
    return len(body) == 1 or all(_fills(culprit, one) for one in plain)


def _plain(made: ast.stmt) -> list[ast.stmt]:
    """The statements in one, but for the loops and conditions around them."""
    around = ast.For | ast.If | ast.With
    return [one for one in parts(made, ast.stmt) if not isinstance(one, around)]


def _one_of_loop(
    culprit: Culprit, made: ast.stmt, filling: Filling | None, factor: ask.ZeroFactor
) -> tuple[Edit, ...]:
    """What `for part in (self.down, self.up):` does to the last of them, without the loop; where
    it does more than to fill, the others are drawn behind it."""
    source = culprit.source
    loop = next((one for one in ancestors(source, made) if isinstance(one, ast.For)), None)
    if loop is None or not isinstance(loop.target, ast.Name):
        return ()
    match loop.iter:
        case ast.Tuple(elts=[_, _, *_] as items) | ast.List(elts=[_, _, *_] as items):
            last, name = items[-1 if factor.earlier else 0], loop.target.id
        case _:
            return ()
    others = [one for one in items if one is not last]
    filled = [_of_item(culprit, filling.filled, name, one) for one in others if filling]
    drawn = [text for one in filled if (text := _drawn(culprit, one, factor)) is not None]
    plain = _plain(loop)
    are_filled = all(one is made or _fills(culprit, one) for one in plain) and not loop.orelse
    if are_filled and plain == loop.body and (drawn or factor.drawn):
        lines = [
            *([] if factor.drawn else drawn),
            *(_of_item(culprit, one, name, last) for one in plain),
        ]
        return (source.replaced(loop, f"{source.newline}{source.indent(loop.lineno)}".join(lines)),)
    if are_filled and factor.drawn:
        return (source.replaced(loop.iter, f"({source.of(last)},)"),)
    return after(source, loop, *drawn) if drawn else ()


def _fills(culprit: Culprit, made: ast.stmt) -> bool:
    return isinstance(made, ast.Expr) and filling_of(culprit, made.value) is not None


def _given_last(culprit: Culprit, node: ast.expr, last: str) -> tuple[Edit, ...]:
    """`self.net[-1].apply(zero)` for `self.net.apply(zero)`, and `zero(self.net[-1])` for
    `zero(self.net)`, also below what gives a name the result; `zero` around the last of what a
    Sequential is made of."""
    source, given = culprit.source, _given_to(node)
    if not isinstance(node, ast.Call) or given is None:
        return ()
    if isinstance(given, HOLDERS) and isinstance(source.parents[node], ast.Expr):
        return (source.replaced(given, source.of(given) + last),)
    if targets := targets_of(source, node):
        line = source.written(node, {given: source.of(targets[0]) + last})
        made = source.replaced(node, source.of(given))
        return (made, *after(source, source.nodes.statement(node), line))
    is_sequential = culprit.dotted(given) == "torch.nn.Sequential" and last == "[-1]"
    item = given.args[-1] if is_sequential and isinstance(given, ast.Call) else None
    if item is None or isinstance(item, ast.Starred):
        return ()
    text = source.written(node, {given: source.of(item)})
    (start, end), (first, past) = source.extent(node), source.extent(given)
    cut = source.edit(start, first, ""), source.edit(past, end, "")
    return (*cut, source.replaced(item, text))


def _given_to(node: ast.expr) -> ast.expr | None:
    """What a call fills, as the argument of a function or by `apply`."""
    if not isinstance(node, ast.Call):
        return None
    if called(node) == "apply" and isinstance(node.func, ast.Attribute):
        return node.func.value
    return next(iter(node.args), None)


def _over_last(culprit: Culprit, node: ast.expr, factor: ask.ZeroFactor) -> tuple[Edit, ...]:
    """`for one in self.net[-1].modules()` for `for one in self.net.modules()`, and
    `self.net[-1:]` for `self.net`, of the innermost loop that goes through the layers."""
    source, loops = culprit.source, list[_Loop]()
    for one in enclosing(source, node):
        loops += [one] if isinstance(one, ast.For) else getattr(one, "generators", [])
    for at, loop in enumerate(loops):
        for holder in parts(loop.iter, ast.expr):
            last = _led_from(source, holder, loops[at + 1 :], factor)
            if last and (edits := _narrowed(source, holder, last)):
                return edits
    return ()


def _led_from(
    source: Source, holder: ast.expr, around: Sequence[_Loop], factor: ask.ZeroFactor
) -> str:
    """What leads to the last layer from what the text calls so; empty where it does not tell."""
    name = last_name(holder)
    found = re.fullmatch(rf"(?:.*\.)?{name}([.\[].*)", factor.last) if name else None
    function = source.nodes.function(holder)
    own = function.args.args[:1] if isinstance(function, ast.FunctionDef) else []
    if found is not None or [source.of(holder)] == [one.arg for one in own]:
        return found[1] if found is not None else factor.inside
    for at, loop in enumerate(around):
        if isinstance(holder, ast.Name) and last_name(loop.target) == name:
            outer = _led_from(source, loop.iter, around[at + 1 :], factor)
            return re.sub(r"^(\.\w+|\[-?\d+\])", "", outer)
    return ""


def _narrowed(source: Source, holder: ast.expr, last: str) -> tuple[Edit, ...]:
    above = source.parents[holder]
    call = source.parents[above] if isinstance(above, ast.Attribute) else holder
    method = above.attr if isinstance(above, ast.Attribute) else "children"
    if method in _OF_PARTS:
        return (source.replaced(holder, source.of(holder) + last),)
    if method in _OF_LAYERS and last == "[-1]":
        return (source.replaced(holder, source.of(holder) + "[-1:]"),)
    if method == "children" and isinstance(call, ast.expr):
        return (source.replaced(call, f"({source.of(holder)}{last},)"),)
    return ()


def _of_item(culprit: Culprit, node: ast.expr | ast.stmt, name: str, item: ast.expr) -> str:
    """The text of a node in which a name stands for an item."""
    reads = [one for one in parts(node, ast.Name) if one.id == name]
    return culprit.source.written(node, dict.fromkeys(reads, culprit.text(item)))


def _drawn(culprit: Culprit, text: str, factor: ask.ZeroFactor) -> str | None:
    """A vector has no fan that its size could come of."""
    template, _ = RELU if factor.dims > 1 else SMALL
    return by_init(culprit, template, text.removesuffix(".data"))
