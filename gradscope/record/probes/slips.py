"""The slip in a backward: the smallest change of its own source that makes its gradient right.

Changes of one place are tried first, then of two, each by one call of the changed backward at the
point and for the grad_outputs at which it was found to be wrong. Of large gradients some elements
are compared, and all of them once those are right.
"""

import ast
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor

from gradscope.dataclass import dataclass
from gradscope.facts import Slip
from gradscope.record.definitions import function_of, source_of, span
from gradscope.record.forking import FORKS
from gradscope.record.probes.calls import Copied
from gradscope.record.probes.derivative import Sample, Truth
from gradscope.record.probes.relations import some, wrong_at
from gradscope.source import Source
from gradscope.source.spans import parenthesized

SECONDS = 3.0  # of computing, for all changes of one backward
BEST = 60  # changes of one place that are tried in pairs: those that leave least wrong
FEWEST = 4  # different numbers in a gradient: with fewer, two changes may make it right by chance

_TURNED: Mapping[type[ast.AST], str] = {
    ast.Lt: ">", ast.Gt: "<", ast.LtE: ">=", ast.GtE: "<=", ast.Eq: "!=", ast.NotEq: "==",
}  # fmt: skip
_OTHER: Mapping[type[ast.AST], tuple[str, ...]] = {
    ast.Add: ("-",), ast.Sub: ("+",), ast.Mult: ("/",), ast.Div: ("*",),
    ast.BitAnd: ("|",), ast.BitOr: ("&",),
}  # fmt: skip
_PARTNERS = {"sin": "cos", "sinh": "cosh", "exp": "log", "sum": "mean", "tanh": "sigmoid"}
_PARTNERS |= {"amax": "amin", "sqrt": "square", "ge": "le", "gt": "lt", "clamp_min": "clamp_max"}
_PARTNERS |= {name: partner for partner, name in _PARTNERS.items()}


@dataclass(frozen=True, slots=True)
class _Change:
    """`text` in the place of what stands between two offsets, inside of `node`."""

    node: ast.expr | ast.stmt
    start: int
    end: int
    text: str


def slips(
    sample: Sample, place: int, truth: Truth, got: list[Tensor], names: Mapping[str, bool]
) -> tuple[Slip, ...]:
    """What to write for the gradient of one input to be right, and those of the others that were so
    to stay it; nothing where no small change does. `names` are what a formula may use: whether each
    is a number."""
    formula: Any = inspect.unwrap(sample.calls.formula)
    code = getattr(formula, "__code__", None)
    is_alone = FORKS and all(one.is_cpu for one in sample.point)  # in a copy of the program
    if code is None or code.co_freevars or truth.whole or not is_alone:
        return ()
    node, source = function_of(code), source_of(code.co_filename)
    if node is None or source is None:
        return ()
    values = len(truth.right[place][0].unique())
    trial = _Trial(sample, place, truth, got, formula, source, node)
    found = _changes(source, node, names)
    if any(sample.input(one).is_complex() for one in range(len(got))):
        found = chain(_conjugated(source, node), found)
    changes = tuple(dict.fromkeys(found))
    mended = trial.found(changes, in_pairs=values >= FEWEST)
    return tuple(_slip(source, code, one) for one in mended)


class _Trial:
    """Calls a backward as it would be with changes of its source."""

    def __init__(
        self,
        sample: Sample,
        place: int,
        truth: Truth,
        got: list[Tensor],
        formula: FunctionType,
        source: Source,
        node: ast.FunctionDef,
    ) -> None:
        self._sample, self._truth, self._formula = sample, truth, formula
        self._source, self._node = source, node
        self._start, self._end = source.offset(node.lineno, 0), source.extent(node)[1]
        self._until = time.process_time() + SECONDS
        off = [
            wrong_at(one, truth.right[p][0], truth.tolerance, truth.noise).flatten()
            for p, one in enumerate(got)
        ]
        right = (p for p, one in enumerate(off) if not bool(one.any()))
        self._seen = {p: some(off[p]) for p in (place, *right)}

    def found(self, changes: tuple[_Change, ...], *, in_pairs: bool) -> tuple[_Change, ...]:
        left, until = {}, self._until - (SECONDS / 2 if in_pairs else 0)
        for one in changes:
            left[one] = self._left((one,)) if time.process_time() < until else None
            if left[one] == 0 and self._is_right((one,)):
                return (one,)
        known = [one for one in changes if left[one] is not None]
        best = sorted(known, key=lambda one: left[one] or 0)[: BEST if in_pairs else 0]
        for first, second in sorted(
            combinations(best, 2), key=lambda pair: sum(left[one] or 0 for one in pair)
        ):
            is_apart = first.end <= second.start or second.end <= first.start
            pair = (first, second)
            if is_apart and self._left(pair) == 0 and self._is_right(pair):
                return tuple(sorted(pair, key=lambda one: one.start))
        return ()

    def _is_right(self, changes: tuple[_Change, ...]) -> bool:
        """Whether no element is wrong with the changes, those that were not looked at included."""
        return self._left(changes, everywhere=True) == 0

    def _left(self, changes: tuple[_Change, ...], *, everywhere: bool = False) -> int | None:
        """How many elements are wrong with the changes; None where they cannot be tried."""
        if time.process_time() > self._until:
            return None
        calls, base, truth, left = self._sample.calls, self._sample.base, self._truth, 0
        try:
            changed = self._compiled(changes)
            for row, cotangent in enumerate(self._sample.cotangents):
                returned = calls.backward(base, cotangent, Copied(base.node, {}), changed)
                for place, seen in self._seen.items():
                    if not self._sample.fits(place, returned[place]):
                        return None
                    at = slice(None) if everywhere else seen
                    found = self._sample.adapted(place, returned[place]).reshape(-1)[at]
                    right = truth.right[place][row].reshape(-1)[at]
                    left += int(wrong_at(found, right, truth.tolerance, truth.noise).sum())
                if left:
                    break
        except Exception:  # many changes make no sense
            return None
        return left

    def _compiled(self, changes: tuple[_Change, ...]) -> Callable[..., Any]:
        text, end = "", self._end
        for one in sorted(changes, key=lambda one: -one.start):
            text = f"{one.text}{self._source.text[one.end : end]}{text}"
            end = one.start
        text = f"if 1:\n {self._source.text[self._start : end].lstrip()}{text}"
        named: dict[str, Any] = {}
        exec(compile(text, "<changed>", "exec"), self._formula.__globals__, named)
        made: Callable[..., Any] = named[self._node.name]
        return made


def _slip(source: Source, code: CodeType, one: _Change) -> Slip:
    node: Any = one.node
    while isinstance(node, ast.Constant | ast.Name | ast.UnaryOp | ast.keyword):
        node = source.parents[node]
    start, end = source.extent(node)
    start, end = min(start, one.start), max(end, one.end)  # a term's parentheses
    text = f"{source.text[start : one.start]}{one.text}{source.text[one.end : end]}"
    around = span(code, node)
    (line, col), (end_line, end_col) = source.place(one.start), source.place(one.end)
    at = replace(around, line=line, col=col, end_line=end_line, end_col=end_col)
    return Slip(around, text, at, one.text)


# The changes


def _changes(
    source: Source, function: ast.FunctionDef, names: Mapping[str, bool]
) -> Iterator[_Change]:
    within = (one for body in function.body for one in ast.walk(body))
    nodes = [one for one in within if isinstance(one, ast.expr | ast.stmt)]
    for kind in (_turned, _operators, _called, _constants, _written):
        for node in nodes:
            yield from kind(source, node)
    for node in nodes:
        yield from _named(source, node, names)
    for node in nodes:
        yield from _multiplied(source, node, names)


def _whole(source: Source, node: ast.expr, text: str) -> _Change:
    return _Change(node, *source.extent(node), text)


def _between(
    source: Source, node: ast.expr | ast.stmt, left: ast.expr, right: ast.expr, sign: str
) -> _Change:
    start, end = parenthesized(source, left)[1], parenthesized(source, right)[0]
    return _Change(node, start, end, f" {sign} ")


def _operand(source: Source, node: ast.expr) -> str:
    start, end = parenthesized(source, node)
    return source.text[start:end]


def _turned(source: Source, node: ast.expr | ast.stmt) -> Iterator[_Change]:
    """The other side of a comparison, the other sign, the other branch."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _TURNED:
            yield _between(source, node, left, right, _TURNED[type(op)])
        case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand) if not isinstance(
            operand, ast.Constant
        ):
            yield _whole(source, node, _operand(source, operand))
        case ast.Subscript(slice=ast.Name() | ast.Attribute() as mask):
            yield _Change(node, *source.extent(mask), f"~{source.of(mask)}")
        case ast.BinOp(left=left, op=ast.Sub() | ast.Div() | ast.MatMult() as op, right=right):
            sign = {ast.Sub: "-", ast.Div: "/", ast.MatMult: "@"}[type(op)]
            sides = (_operand(source, right), _operand(source, left))
            yield _whole(source, node, f" {sign} ".join(sides))
        case ast.Call(func=ast.Attribute(attr="where"), args=[_, one, other]):
            texts = source.of(other), source.of(one)
            yield _Change(node, source.extent(one)[0], source.extent(other)[1], ", ".join(texts))


def _operators(source: Source, node: ast.expr | ast.stmt) -> Iterator[_Change]:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            for sign in _OTHER.get(type(op), ()):
                yield _between(source, node, left, right, sign)
            if isinstance(op, ast.Add):
                start = parenthesized(source, left)[0]
                yield _Change(node, start, start, "-")
            if type(op) in _OTHER:  # without the factor, or the term
                yield _whole(source, node, _operand(source, left))
            if isinstance(op, ast.Mult | ast.Add | ast.Sub):
                yield _whole(source, node, _operand(source, right))
            if isinstance(op, ast.MatMult):
                for side in (left, right):
                    text = f"{_operand(source, side)}.mT"
                    yield _Change(node, *parenthesized(source, side), text)
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value):
            sign = "-=" if isinstance(op, ast.Add) else "+="
            yield _between(source, node, target, value, sign)


def _called(source: Source, node: ast.expr | ast.stmt) -> Iterator[_Change]:
    """Another function, along another dimension."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    name, end = node.func.attr, source.extent(node.func)[1]
    if name in _PARTNERS:
        yield _Change(node, end - len(name), end, _PARTNERS[name])
    if name == "squeeze" and not node.args and not node.keywords:
        yield _Change(node, end, source.extent(node)[1], "(-1)")  # all other dimensions are kept
    if name in ("sum", "mean", "amax") and node.args and not node.keywords:
        last = source.extent(node)[1] - 1
        yield _Change(node, last, last, ", keepdim=True")
    if name in ("t", "transpose") and not isinstance(node.func.value, ast.Name):
        yield _whole(source, node, _operand(source, node.func.value))


def _constants(source: Source, node: ast.expr | ast.stmt) -> Iterator[_Change]:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            yield from (_whole(source, node, text) for text in _numbers(-value))
        case ast.Constant(value=int() | float() as value) if type(value) is not bool:
            if not isinstance(source.parents[node], ast.UnaryOp):
                yield from (_whole(source, node, text) for text in _numbers(value))
        case ast.BinOp(op=ast.Pow(), right=ast.Name() | ast.Attribute() as power):
            for text in (f"({source.of(power)} - 1)", f"({source.of(power)} + 1)"):
                yield _Change(node, *source.extent(power), text)


def _conjugated(source: Source, function: ast.FunctionDef) -> Iterator[_Change]:
    """The conjugate of a factor: a gradient is what comes in times the conjugate of the slope."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            for side in (node.left, node.right):
                _, end = parenthesized(source, side)
                is_atom = isinstance(side, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
                if is_atom or end != source.extent(side)[1]:
                    yield _Change(side, end, end, ".conj()")


def _numbers(value: float) -> Iterator[str]:
    towards_zero = 1 if value < 0 else -1
    steps = (value + towards_zero, value - towards_zero)
    for other in dict.fromkeys((*steps, -value, 2 * value, value / 2)):
        is_whole = float(other).is_integer() and isinstance(value, int)
        if other != value:
            yield repr(int(other) if is_whole else other)


def _written(source: Source, node: ast.expr | ast.stmt) -> Iterator[_Change]:
    """`g[mask] *= a` for `g[mask] = a`, and the other way round."""
    match node:
        case ast.Assign(targets=[ast.Subscript() as target], value=value):
            yield _between(source, node, target, value, "*=")
        case ast.AugAssign(target=ast.Subscript() as target, value=value):
            for sign in ("=", "*=", "/="):
                yield _between(source, node, target, value, sign)


def _named(
    source: Source, node: ast.expr | ast.stmt, names: Mapping[str, bool]
) -> Iterator[_Change]:
    """Another tensor, another number."""
    is_read = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    text = source.of(node) if is_read else ""
    if text not in names or not isinstance(node, ast.expr):
        return
    for other, is_number in names.items():
        if other != text and is_number == names[text]:
            yield _whole(source, node, other)
    if names[text]:
        yield from (_whole(source, node, f"({one})") for one in (f"1 - {text}", f"1 / {text}"))


def _multiplied(
    source: Source, node: ast.expr | ast.stmt, names: Mapping[str, bool]
) -> Iterator[_Change]:
    """A term that lacks a factor."""
    terms: list[ast.expr] = []
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            terms = [left, right]
        case ast.Return(value=ast.Tuple(elts=elements)):
            terms = elements
        case (
            ast.Return(value=ast.expr() as value)
            | ast.Assign(targets=[ast.Name() | ast.Subscript()], value=value)
            | ast.AugAssign(value=value)
            | ast.Subscript(slice=ast.Compare(), value=value)
        ) if not isinstance(value, ast.Tuple):
            terms = [value]
        case ast.Call(func=ast.Attribute(attr="where"), args=[_, one, other]):
            terms = [one, other]
        case ast.Call(func=ast.Attribute(attr="sum" | "mean", value=summed)):
            terms = [summed]
    for term in terms:
        if isinstance(term, ast.Constant) and term.value is None:
            continue
        text = _operand(source, term)
        is_sum = isinstance(term, ast.BinOp) and not isinstance(term.op, ast.Mult | ast.Div)
        if (is_sum or isinstance(term, ast.Compare)) and text == source.of(term):
            text = f"({text})"
        is_receiver = isinstance(source.parents[term], ast.Attribute)
        if is_receiver and not is_sum:
            text = source.of(term)
        form = "({} {} {})" if is_receiver else "{} {} {}"
        for sign in "*/":
            for name in (*names, "2", "0.5"):
                change = form.format(text, sign, name)
                yield _Change(term, *parenthesized(source, term), change)
