"""The condition that a masking call was given, and which of its values it keeps where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.source.operands import draws, operands, spelled
from gradscope.source.spans import Scope, scope, statement
from gradscope.source.text import Source


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
    carriers = _Carriers(source, culprit, before=statement(source, place).lineno)
    found = spelled(source, place)
    name = found.name if found else ""
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
    if name == "mul" and found is not None and len(found.positional) == 2:
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
        for made in _assignments(scope(source, culprit)):
            carries = any(self._is_carrier(part) for part in ast.walk(made.value))
            if made.lineno < before and carries:
                self.names.update(_bound(made.targets))

    def _is_carrier(self, node: ast.AST) -> bool:
        return node is self.culprit or (isinstance(node, ast.Name) and node.id in self.names)

    def side(self, first: ast.expr | None, second: ast.expr | None) -> bool | None:
        """True if only the first carries the value, False if only the second, else None."""
        holds = [
            node is not None and any(self._is_carrier(part) for part in ast.walk(node))
            for node in (first, second)
        ]
        return holds[0] if holds[0] != holds[1] else None


def _assignments(where: Scope) -> Iterator[ast.Assign]:
    return (node for node in _in_order(where) if isinstance(node, ast.Assign))


def _in_order(where: ast.AST) -> Iterator[ast.AST]:
    """Depth first, as the text runs; other than ast.walk, which goes level by level."""
    for child in ast.iter_child_nodes(where):
        yield child
        yield from _in_order(child)


def _bound(targets: list[ast.expr]) -> Iterator[str]:
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                yield part.id


def definition(source: Source, name: ast.Name) -> ast.expr | None:
    """What a name was given by plain assignment: the only one in its function, or the last one of
    several that stand one below the other in the block of the name's own statement."""
    made = [
        one
        for one in _assignments(scope(source, name))
        if any(isinstance(target, ast.Name) and target.id == name.id for target in one.targets)
    ]
    if len(made) > 1:
        here = statement(source, name)
        block = source.parents.get(here)
        if any(source.parents.get(one) is not block for one in made) or _writes(source, name, made):
            return None
        made = [one for one in made if _start(one) < _start(here)][-1:]
    return made[0].value if made else None


def _start(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _writes(source: Source, name: ast.Name, made: list[ast.Assign]) -> bool:
    """Whether anything but these assignments binds the name: a loop, `+=`, an unpacking."""
    known = {id(target) for one in made for target in one.targets}
    return any(
        isinstance(node, ast.Name)
        and node.id == name.id
        and isinstance(node.ctx, ast.Store)
        and id(node) not in known
        for node in ast.walk(scope(source, name))
    )


def in_reach(source: Source, node: ast.expr, place: ast.AST) -> bool:
    """Whether an expression means the same right before the statement that holds `place`.

    Every name in it must be bound by then, and not be given anew between there and the node.
    """
    here, there = scope(source, place), scope(source, node)
    if here is not there:
        return False
    before, after = statement(source, place).lineno, statement(source, node).lineno
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    for name in names:
        stores = [line for line, bound in _stores(here) if bound == name]
        if any(before <= line < after for line in stores):
            return False
        is_local = bool(stores) or name in _parameters(here)
        if is_local and name not in _parameters(here) and not any(line < before for line in stores):
            return False
    # What draws random numbers cannot be written twice.
    return not any(draws(source, part) for part in ast.walk(node))


def _stores(where: Scope) -> Iterator[tuple[int, str]]:
    for node in _in_order(where):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.lineno, node.target.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.alias):
            yield node.lineno, (node.asname or node.name).partition(".")[0]


def _parameters(where: Scope) -> set[str]:
    if isinstance(where, ast.Module):
        return set()
    spec = where.args
    listed = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)
    return {parameter.arg for parameter in listed if parameter}
