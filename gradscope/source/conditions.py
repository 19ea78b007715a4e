"""The condition that a masking call was given, and which of its values it keeps where."""

from __future__ import annotations

import ast

from gradscope.dataclass import dataclass
from gradscope.source.arguments import operands, spelled
from gradscope.source.meaning import definition
from gradscope.source.text import Source
from gradscope.source.tree import names_in


@dataclass(frozen=True, slots=True)
class Mask:
    """What a mask says about one of the values that pass through it.

    `condition` is the expression as written. `kept` tells where the value survives: True where
    the condition holds, False where it does not, None where the source does not tell.
    `number` is set where the condition is a float mask that is multiplied, not a boolean.
    """

    condition: ast.expr
    kept: bool | None
    number: bool = False


def mask(source: Source, place: ast.AST, culprit: ast.AST | None = None) -> Mask | None:
    """The mask that a call, an index or a product at `place` applies to the culprit's value."""
    carriers = _Carriers(source, culprit, before=source.nodes.statement(place).lineno)
    found = spelled(source, place)
    name = found.name
    if name in ("where", "masked_fill", "masked_select") and isinstance(place, ast.Call):
        arguments = operands(source, place, name)
        condition = arguments.get("condition") or arguments.get("mask")
        if condition is None:
            return None
        if name == "where":
            return Mask(condition, carriers.side(arguments.get("self"), arguments.get("other")))
        return Mask(condition, name == "masked_select")
    if isinstance(place, ast.Subscript):
        return _indexed(source, place, carriers)
    if name == "mul" and len(found.positional) == 2:
        left, right = found.positional
        first = carriers.side(left, right)
        if first is None:
            return None
        return _product(right if first else left)
    return None


def _indexed(source: Source, place: ast.Subscript, carriers: _Carriers) -> Mask | None:
    """`y[m]` keeps y where m; in `y[m] = v`, y survives where not m, and v where m."""
    if isinstance(place.slice, ast.Slice | ast.Constant | ast.Tuple | ast.UnaryOp) and not (
        isinstance(place.slice, ast.UnaryOp) and isinstance(place.slice.op, ast.Invert)
    ):
        return None
    if isinstance(place.ctx, ast.Load):
        return Mask(place.slice, True)
    parent = source.parents.get(place)
    value = getattr(parent, "value", None)
    return Mask(place.slice, carriers.side(value, place.value))


def _product(factor: ast.expr) -> Mask:
    """`(1 - mask) * y` keeps y where not mask, `mask * y` where mask."""
    if isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Sub):
        if isinstance(factor.left, ast.Constant) and factor.left.value == 1:
            return Mask(factor.right, False, number=True)
    if isinstance(factor, ast.UnaryOp) and isinstance(factor.op, ast.Invert):
        return Mask(factor.operand, False)
    return Mask(factor, True, number=True)


class _Carriers:
    """Which expressions carry the culprit's value: those that hold it, or a name made from it."""

    def __init__(self, source: Source, culprit: ast.AST | None, before: int) -> None:
        self.culprit = culprit
        self.names: set[str] = set()
        if culprit is None:
            return
        here = source.nodes.scope(culprit).function
        for made in source.nodes.every(ast.Assign):
            if made.lineno < before and source.nodes.scope(made).function is here:
                if any(self._is_carrier(part) for part in ast.walk(made.value)):
                    self.names.update(*map(names_in, made.targets))

    def _is_carrier(self, node: ast.AST) -> bool:
        return node is self.culprit or (isinstance(node, ast.Name) and node.id in self.names)

    def side(self, first: ast.expr | None, second: ast.expr | None) -> bool | None:
        """True if only the first carries the value, False if only the second, else None."""
        holds = [
            node is not None and any(self._is_carrier(part) for part in ast.walk(node))
            for node in (first, second)
        ]
        return holds[0] if holds[0] != holds[1] else None


_HANDS_ON = frozenset("bool float double int long half to type unsqueeze squeeze view".split())
_TRUTHS = frozenset("isfinite isnan isinf eq ne lt gt le ge logical_and logical_not".split())


def counts(source: Source, node: ast.expr) -> bool:
    """Whether an expression counts what is true, `(y > 0).float().sum()`, or what an index holds,
    `zeros.index_add(0, at, ones)`; also through names."""
    found = spelled(source, _given(source, node))
    if (first := found.first) is None:
        return False
    if found.name in _HANDS_ON:
        return counts(source, first)
    if found.name in ("index_add", "scatter_add"):
        parts = (first, found.positional[-1])
        names = [spelled(source, _given(source, one)).name for one in parts]
        return names[0] in ("zeros", "new_zeros") and names[1] in ("ones", "ones_like", "new_ones")
    is_count = found.name in ("bincount", "count_nonzero")
    return is_count or (found.name == "sum" and (_is_truth(source, first) or counts(source, first)))


def _is_truth(source: Source, node: ast.expr) -> bool:
    node = _given(source, node)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor):
        return True
    found = spelled(source, node)
    if found.name in _HANDS_ON and found.first is not None:
        return _is_truth(source, found.first)
    return found.name in _TRUTHS


def _given(source: Source, node: ast.expr) -> ast.expr:
    """The expression that a name stands for, followed through other names."""
    seen: set[ast.AST] = set()
    while isinstance(node, ast.Name) and node not in seen:
        seen.add(node)  # two names may be given each other
        node = definition(source, node) or node
    return node
