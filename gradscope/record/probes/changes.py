"""The small changes of a backward's own source: another sign, operator, function, dimension, number
or name, each in one place."""

import ast
from collections.abc import Iterator, Mapping
from itertools import combinations, product

from gradscope.dataclass import dataclass
from gradscope.source import Source, definition
from gradscope.source.arguments import spelled
from gradscope.source.spans import parenthesized
from gradscope.source.tree import names_in

_TURNED: Mapping[type[ast.AST], str] = {
    ast.Lt: ">", ast.Gt: "<", ast.LtE: ">=", ast.GtE: "<=", ast.Eq: "!=", ast.NotEq: "==",
}  # fmt: skip
_OTHER: Mapping[type[ast.AST], tuple[str, ...]] = {
    ast.Add: ("-", "*"), ast.Sub: ("+",), ast.Mult: ("/",), ast.Div: ("*",),
    ast.BitAnd: ("|",), ast.BitOr: ("&",),
}  # fmt: skip
_PARTNERS = {"sin": "cos", "sinh": "cosh", "exp": "log", "sum": "mean", "tanh": "sigmoid"}
_PARTNERS |= {"amax": "amin", "sqrt": "square", "ge": "le", "gt": "lt", "clamp_min": "clamp_max"}
_PARTNERS |= {name: partner for partner, name in _PARTNERS.items()}

_HAND_OUT = frozenset(("index_select", "gather", "repeat_interleave", "expand", "expand_as"))
_DIMS = [
    str(dims[0] if count == 1 else dims)
    for count in (1, 2, 3)
    for dims in combinations(range(4), count)
]


@dataclass(frozen=True, slots=True)
class Change:
    """`text` in the place of what stands between two offsets, inside of `node`."""

    node: ast.expr | ast.stmt
    start: int
    end: int
    text: str


def changes(
    source: Source, function: ast.FunctionDef, names: Mapping[str, bool]
) -> Iterator[Change]:
    within = (one for body in function.body for one in ast.walk(body))
    nodes = [one for one in within if isinstance(one, ast.expr | ast.stmt)]
    for kind in (_turned, _operators, _called, _constants, _written):
        for node in nodes:
            yield from kind(source, node)
    came = [one.arg for one in function.args.args][1:2]
    for node in nodes if came else ():
        yield from reduced(source, node, came[0])
    for using in (_named, _multiplied, _weighed):
        for node in nodes:
            yield from using(source, node, names)
    for statement in function.body if came else ():
        yield from _weighed_on_entry(source, statement, came[0], names)


def _whole(source: Source, node: ast.expr, text: str) -> Change:
    return Change(node, *source.extent(node), text)


def _between(
    source: Source, node: ast.expr | ast.stmt, left: ast.expr, right: ast.expr, sign: str
) -> Change:
    start, end = parenthesized(source, left)[1], parenthesized(source, right)[0]
    return Change(node, start, end, f" {sign} ")


def _operand(source: Source, node: ast.expr) -> str:
    start, end = parenthesized(source, node)
    return source.text[start:end]


def _turned(source: Source, node: ast.expr | ast.stmt) -> Iterator[Change]:
    """The other side of a comparison, the other sign, the other branch."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _TURNED:
            yield _between(source, node, left, right, _TURNED[type(op)])
        case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand) if not isinstance(
            operand, ast.Constant
        ):
            yield _whole(source, node, _operand(source, operand))
        case ast.Subscript(slice=ast.Name() | ast.Attribute() as mask):
            yield Change(node, *source.extent(mask), f"~{source.of(mask)}")
        case ast.BinOp(left=left, op=ast.Sub() | ast.Div() | ast.MatMult() as op, right=right):
            sign = {ast.Sub: "-", ast.Div: "/", ast.MatMult: "@"}[type(op)]
            sides = (_operand(source, right), _operand(source, left))
            yield _whole(source, node, f" {sign} ".join(sides))
        case ast.Call(func=ast.Attribute(attr="where"), args=[_, one, other]):
            texts = source.of(other), source.of(one)
            yield Change(node, source.extent(one)[0], source.extent(other)[1], ", ".join(texts))


_REDUCTIONS = ("sum", "mean", "amax")


def _operators(source: Source, node: ast.expr | ast.stmt) -> Iterator[Change]:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            for sign in _OTHER.get(type(op), ()):
                yield _between(source, node, left, right, sign)
            if isinstance(op, ast.Add):
                start = parenthesized(source, left)[0]
                yield Change(node, start, start, "-")
            if type(op) in _OTHER:  # without the factor, or the term
                yield _whole(source, node, _operand(source, left))
            if isinstance(op, ast.Mult | ast.Add | ast.Sub):
                yield _whole(source, node, _operand(source, right))
            if isinstance(op, ast.MatMult):
                for side in (left, right):
                    text = f"{_operand(source, side)}.mT"
                    yield Change(node, *parenthesized(source, side), text)
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value):
            sign = "-=" if isinstance(op, ast.Add) else "+="
            yield _between(source, node, target, value, sign)


def _called(source: Source, node: ast.expr | ast.stmt) -> Iterator[Change]:
    """Another function."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    name, end = node.func.attr, source.extent(node.func)[1]
    if name in _PARTNERS:
        yield Change(node, end - len(name), end, _PARTNERS[name])
    if name == "squeeze" and not node.args and not node.keywords:
        yield Change(node, end, source.extent(node)[1], "(-1)")  # all other dimensions are kept
    if name in ("t", "transpose") and not isinstance(node.func.value, ast.Name):
        yield _whole(source, node, _operand(source, node.func.value))


def reduced(source: Source, node: ast.expr | ast.stmt, came: str) -> Iterator[Change]:
    """A sum that keeps its dimensions, or does not; over other dimensions, over none. `came` is the
    gradient that came in: mostly of as many dimensions as what is summed."""
    call = spelled(source, node)
    is_sum = call.name in _REDUCTIONS and call.keywords.keys() <= {"dim", "keepdim"}
    if not isinstance(node, ast.Call) or not is_sum or not 0 < len(call.positional) <= 3:
        return
    summed, *given = call.positional
    dims = given[0] if given else call.keywords.get("dim")
    kept = given[1] if len(given) > 1 else call.keywords.get("keepdim")
    keeps = kept is not None and source.of(kept) == "True"
    start, end = parenthesized(source, summed)[1], source.extent(node)[1] - 1
    if call.method:
        start = source.text.index("(", source.extent(node.func)[1]) + 1
    before = ("" if call.method else ", ") + ("dim=" if "dim" in call.keywords else "")

    def over(text: str, keeps: bool) -> Change:
        return Change(node, start, end, f"{before}{text}{', keepdim=True' if keeps else ''}")

    if dims is not None:
        yield over(source.of(dims), not keeps)
    rank = f"{source.of(summed) if isinstance(summed, ast.Name) else came}.ndim"
    general = [f"list(range({rank} - {left}))" for left in (1, 2)] + [f"[0, *range(2, {rank})]"]
    made = definition(source, dims)
    if dims is None or not names_in(dims):
        for keeping in (keeps, not keeps):
            yield from (over(text, keeping) for text in (*_DIMS, *general))
    else:
        readers = source.nodes.reads(dims) if isinstance(dims, ast.Name) and made else ()
        calls = (spelled(source, source.parents[one]) for one in readers)
        if made and readers and all(one.name in _REDUCTIONS for one in calls):
            yield from (_whole(source, made, text) for text in general)
        yield from (over(text, keeps) for text in general)
    yield _whole(source, node, _operand(source, summed))


def _constants(source: Source, node: ast.expr | ast.stmt) -> Iterator[Change]:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            yield from (_whole(source, node, text) for text in _numbers(-value))
        case ast.Constant(value=int() | float() as value) if type(value) is not bool:
            if not isinstance(source.parents[node], ast.UnaryOp):
                yield from (_whole(source, node, text) for text in _numbers(value))
        case ast.BinOp(op=ast.Pow(), right=ast.Name() | ast.Attribute() as power):
            for text in (f"({source.of(power)} - 1)", f"({source.of(power)} + 1)"):
                yield Change(node, *source.extent(power), text)


def conjugated(source: Source, function: ast.FunctionDef) -> Iterator[Change]:
    """The conjugate of a factor: a gradient is what comes in times the conjugate of the slope."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            for side in (node.left, node.right):
                _, end = parenthesized(source, side)
                is_atom = isinstance(side, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
                if is_atom or end != source.extent(side)[1]:
                    yield Change(side, end, end, ".conj()")


def _numbers(value: float) -> Iterator[str]:
    towards_zero = 1 if value < 0 else -1
    steps = (value + towards_zero, value - towards_zero)
    for other in dict.fromkeys((*steps, -value, 2 * value, value / 2)):
        is_whole = float(other).is_integer() and isinstance(value, int)
        if other != value:
            yield repr(int(other) if is_whole else other)


def _written(source: Source, node: ast.expr | ast.stmt) -> Iterator[Change]:
    """`g[mask] *= a` for `g[mask] = a`, and the other way round."""
    match node:
        case ast.Assign(targets=[ast.Subscript() as target], value=value):
            yield _between(source, node, target, value, "*=")
        case ast.AugAssign(target=ast.Subscript() as target, value=value):
            for sign in ("=", "*=", "/="):
                yield _between(source, node, target, value, sign)


def _named(
    source: Source, node: ast.expr | ast.stmt, names: Mapping[str, bool]
) -> Iterator[Change]:
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


def _weighed(
    source: Source, node: ast.expr | ast.stmt, names: Mapping[str, bool]
) -> Iterator[Change]:
    """Rows that are handed out, each of which lacks a factor: `(g / size.unsqueeze(-1))[owner]`."""
    match node:
        case (
            ast.Call(func=ast.Attribute(attr=name, value=rows))
            | ast.Subscript(value=rows, slice=ast.Name(id=name), ctx=ast.Load())
        ) if name in _HAND_OUT or isinstance(node, ast.Subscript):
            tensors = [one for one, is_number in names.items() if not is_number]
            for sign, one in product("/*", tensors):
                for factor in (f"{one}.unsqueeze(-1)", one):
                    text = f"({source.of(rows)} {sign} {factor})"
                    yield Change(rows, *parenthesized(source, rows), text)


def _weighed_on_entry(
    source: Source, statement: ast.stmt, came: str, names: Mapping[str, bool]
) -> Iterator[Change]:
    """The gradient that came in, times a factor for all that reads it from here on."""
    if came in names_in(statement):
        start = source.extent(statement)[0]
        indent = f"{source.newline}{source.indent(statement.lineno)}"
        for name in names:
            yield Change(statement, start, start, f"{came} = {came} * {name}{indent}")


def _multiplied(
    source: Source, node: ast.expr | ast.stmt, names: Mapping[str, bool]
) -> Iterator[Change]:
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
                yield Change(term, *parenthesized(source, term), change)
