"""What a patch writes twice, and what the program computes for it: computed once, under a name."""

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import replace
from keyword import iskeyword

from gradscope.ops import lookup
from gradscope.repair.write.culprit import ATOMS, LONGEST_TWICE, MOVES, Candidate, Culprit
from gradscope.repair.write.splice import before
from gradscope.source import Source
from gradscope.source.arguments import ARGUMENTS, called, canonical
from gradscope.source.scopes import Comprehension
from gradscope.source.spans import ancestors
from gradscope.source.tree import parts

_SIMPLE = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr
LONG = 24  # characters of arithmetic that nobody writes three times
# What evaluates its parts elsewhere, many times or not at all.
_INNER = ast.Lambda | Comprehension | ast.IfExp | ast.BoolOp | ast.NamedExpr
_CHEAP = frozenset("dim len new_ones new_tensor new_zeros numel size".split())  # run no kernel
_NAMES = ("values", "computed")


def computed_once(culprit: Culprit, one: Candidate) -> Candidate:
    """The candidate with a name, on a line before, for each computation of the program that it
    would write a second time: that would draw its dropout again, count its batch twice, and take
    its time. Left as it is where no line can be put there."""
    source = culprit.source
    for node in _computed(culprit, one):
        text, place = source.of(node), source.nodes.statement(node)
        pattern = _as_operand(node, text)
        written = sum(len(pattern.findall(edit.text)) for edit in one.edits)
        same = (part for part in source.nodes.every(type(node)) if source.of(part) == text)
        if written <= sum(_is_covered(source, one, part) for part in same):
            continue
        starts = [(edit.line, edit.col) for edit in one.edits if pattern.search(edit.text)]
        is_first = all((place.lineno, 0) <= start for start in starts)
        name = next(source.free(_names(source, node)), "")
        value = text if isinstance(node, ATOMS) or "\n" not in text else f"({text})"
        line = before(source, place, f"{name} = {value}") if name and is_first else ()
        if not line or not isinstance(place, _SIMPLE):
            continue
        edits = [replace(edit, text=pattern.sub(name, edit.text)) for edit in one.edits]
        if not _is_covered(source, one, node):
            edits.append(source.replaced(node, name))
        one = replace(
            one,
            title=pattern.sub(name, one.title).replace(f"`{text}`", f"`{name}`"),
            edits=(*line, *edits),
        )
    return one


def _computed(culprit: Culprit, one: Candidate) -> Iterator[ast.expr]:
    """What the culprit's function computes and the edits write, the largest first: where it stands
    elsewhere, what runs a module or a function of the program."""
    source, node = culprit.source, culprit.node
    where = source.nodes.function(node) if node is not None else None
    edited = "\n".join(edit.text for edit in one.edits)
    found = {
        part: len(text)
        for kind in (ast.Call, ast.BinOp)
        for part in source.nodes.every(kind)
        if source.nodes.function(part) is where
        and (text := source.of(part)) in edited
        and (kind is ast.Call or len(text) <= LONGEST_TWICE)
        and (_is_covered(source, one, part) or _is_own(source, part))
    }
    for part in sorted(found, key=found.__getitem__, reverse=True):
        calls = [*parts(part, ast.Call)]
        is_cheap = all(map(_is_cheap, calls)) if calls else found[part] < LONG
        if not is_cheap and not any(isinstance(one, _INNER) for one in ancestors(source, part)):
            yield part


def _is_cheap(call: ast.Call) -> bool:
    is_python = isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id)
    return is_python or called(call) in _CHEAP


def _as_operand(node: ast.expr, text: str) -> re.Pattern[str]:
    """Where a text writes an expression as a whole, with the parentheses around it alone."""
    whole = re.escape(text)
    if isinstance(node, ATOMS):
        return re.compile(rf"(?<![\w.]){whole}(?!\w)")
    return re.compile(rf"(?<![\w\])])\({whole}\)|(?<=[(,] ){whole}(?=[,)])|(?<=\(){whole}(?=[,)])")


def _names(source: Source, node: ast.expr) -> Iterator[str]:
    """`scores_amax` of `scores.amax(-1)` and of `torch.amax(scores, -1)`."""
    match node:
        case ast.Call(func=ast.Name()) if _is_own(source, node):
            pass
        case ast.Call(func=ast.Attribute(value=owner)) if source.names.dotted(node.func) is None:
            yield from _named(owner, called(node))
        case ast.Call(args=[first, *_]):
            yield from _named(first, called(node))
    match source.parents[node]:
        case ast.BinOp(op=ast.Div(), right=right) if right is node:
            yield "denominator"
    yield from _NAMES


def _named(owner: ast.expr, op: str) -> Iterator[str]:
    match owner:
        case ast.Name(of) | ast.Attribute(attr=of) if of != "self":
            name = f"{of}_{canonical(op).strip('_')}"
            if name.isidentifier() and not iskeyword(name):
                yield name


def _is_covered(source: Source, one: Candidate, node: ast.expr) -> bool:
    """Whether an edit is of the place of a node."""
    first, last = source.extent(node)
    spans = (
        (source.offset(e.line, e.col), source.offset(e.end_line, e.end_col)) for e in one.edits
    )
    return any(start <= first and last <= end for start, end in spans)


def _is_own(source: Source, node: ast.expr) -> bool:
    """Whether it is a call of what is no op of torch, as far as the text tells."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    name = called(node)
    is_op = name in ARGUMENTS or canonical(name) in MOVES or lookup(canonical(name)) is not None
    return not is_op and not (source.names.dotted(node.func) or "").startswith("torch.")
