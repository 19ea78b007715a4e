"""Expressions by an example, and what to write in their place.

`1 / (1 + exp(-z))` stands for whatever computes this: with any expression for `z`, through names,
as methods or operators, with the operands of a sum or a product in either order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from gradscope.ops.patterns import EPSILON
from gradscope.repair.write.reading import Reading, atom, factor, negative, term
from gradscope.source.arguments import BINARY, operands

Parts = dict[str, ast.expr]  # what the names of an example stand for
Pair = tuple[ast.expr, ast.expr]
Op = ast.BinOp | ast.UnaryOp | ast.Call

_COMMUTE = ("add", "mul")
_ALSO = {"pow": "mul", "sqrt": "pow"}  # what a square and a root may be written as
_DEFAULTS = {"alpha": 1, "keepdim": 0, "p": 2}  # which say nothing where they are written


_PLACES = {"atom": atom, "factor": factor, "term": term, "negative": negative}


class _Text(str):
    """`{z:atom}` is `{z}` as an operand of anything, `{z:term}` as what is taken from a number, and
    `{z:negative}` is `-{z}`."""

    def __format__(self, place: str) -> str:
        text = str(self)
        return _PLACES[place](text) if place else text


def in_form(
    read: Reading, forms: Mapping[str, str], node: ast.expr, known: Parts | None = None
) -> str | None:
    """The text for the first example that a node fits, with its parts as `{z}`. A form that is a
    call without a module becomes one as the program writes it. Parts that are `known` stand for
    that alone."""
    for example, form in forms.items():
        if (parts := fit(read, example, node, known)) is not None:
            text = form.format(**{name: _Text(read.text(one)) for name, one in parts.items()})
            function, _, _ = form.partition("(")
            is_call = function.isidentifier()
            return read.call(function, text[len(function) + 1 : -1]) if is_call else text
    return None


def fit(read: Reading, example: str, node: ast.expr, known: Parts | None = None) -> Parts | None:
    """What the names of an example stand for in a node; None where that is something else. `eps`
    stands for a number that guards something, not to mean something."""
    return next(_fits(read, [(_parsed(example), node)], known or {}), None)


def ops_of(example: str) -> list[str]:
    """All ops that an example may be made of, those that it may end in first."""
    written = (_op(part) for part in ast.walk(_parsed(example)) if isinstance(part, Op))
    return [op for one in written for op in (one, _ALSO.get(one, one))]


@cache
def _parsed(example: str) -> ast.expr:
    return ast.parse(example, mode="eval").body


def _op(example: Op) -> str:
    if isinstance(example, ast.Call):
        return ast.unparse(example.func)
    return BINARY[type(example.op)] if isinstance(example, ast.BinOp) else "neg"


def _fits(read: Reading, pairs: list[Pair], parts: Parts) -> Iterator[Parts]:
    """The ways in which the examples and nodes of all pairs fit together."""
    if not pairs:
        yield parts
        return
    (example, node), *rest = pairs
    if isinstance(example, Op):
        for inner in _operands(read, example, node):
            yield from _fits(read, [*inner, *rest], parts)
    elif isinstance(example, ast.Constant):
        if read.number(node) == example.value:
            yield from _fits(read, rest, parts)
    elif isinstance(example, ast.Name):
        # What stands for a part is not looked into: it stays as it is.
        is_part = example.id != "eps" or 0 < (read.number(node) or 0) <= EPSILON
        known = parts.get(example.id, node)
        if is_part and (known is node or read.same(known, node)):
            yield from _fits(read, rest, {example.id: node} | parts)


def _operands(read: Reading, example: Op, node: ast.expr) -> Iterator[list[Pair]]:
    """The operands of an example beside those of a node that writes the same op."""
    op, source = _op(example), read.culprit.source
    wanted = operands(source, example, op)
    root = read.op(node, "pow") if op == "sqrt" else None
    if op == "pow" and (base := read.squared(node)) is not None:
        yield [(wanted["self"], base)]  # no example has another power than the square
    elif root is not None and read.number(root.positional[-1]) == 0.5:
        yield [(wanted["self"], root.positional[0])]
    elif read.op(node, op) is not None:
        found = operands(source, read.meaning(node), op).items()
        given = {at: one for at, one in found if at in wanted or not _is_default(read, at, one)}
        if given.keys() == wanted.keys():
            yield [(wanted[at], given[at]) for at in wanted]
            if op in _COMMUTE:
                yield list(zip(wanted.values(), reversed(given.values()), strict=True))


def _is_default(read: Reading, argument: str, node: ast.expr) -> bool:
    return argument in _DEFAULTS and read.number(node) == _DEFAULTS[argument]
