"""A result of several numbers that was to be differentiated: where it was left so."""

import ast
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import torch

from gradscope.facts import Call, Location
from gradscope.ops.traits import Trait, has
from gradscope.record import graph
from gradscope.record.definitions import written_at
from gradscope.record.journal import Note
from gradscope.record.refusals.exceptions import Raised
from gradscope.record.sites import Site
from gradscope.source import Source
from gradscope.source.arguments import spelled
from gradscope.source.spans import ancestors
from gradscope.source.tree import Op, covers

_OF_SEVERAL = Trait.SUMS | Trait.AVERAGES | Trait.SPREADS


def left_so(raised: Raised, root: torch.Tensor) -> tuple[Call | None, Location | None]:
    """The op that made it, and did more than multiply it by a number; and where that stands, unless
    it is in what is differentiated, or several numbers are wanted: as the output of a model, or to
    be added up, or chosen from, elsewhere."""
    node, context = root.grad_fn, raised.context
    while (below := _scaled(node)) is not None:
        node = below
    note, call = context.call_of_node(node), context.call(node)
    at, here = call.location if call is not None else None, raised.place
    if note is None or at is None or here is None:
        return call, None
    is_here = at.file == here.file and here.line <= at.line <= here.end_line
    is_wanted = is_here or _is_output(note) or _is_read_whole(note.user)
    return call, None if is_wanted else at


def _scaled(node: Any) -> Any:
    """What a node multiplies, or divides, by one number."""
    if node is None or not has(graph.node_name(node), Trait.MULTIPLIES | Trait.DIVIDES):
        return None
    below, factor = graph.inputs(node), graph.saved(node, "other")
    is_number = len(below) == 1 and factor is not None and factor.numel() == 1
    return below[0] if is_number and not hasattr(below[0], "variable") else None


def _is_output(note: Note) -> bool:
    """Whether a module with parameters has computed it, and no loss that it computes itself."""
    frame = note.module
    while frame is not None and frame.outer is not None:
        frame = frame.outer
    learns = frame is not None and next(frame.module.parameters(), None) is not None
    return learns and not has(note.info.name, _OF_SEVERAL)


def _is_read_whole(made: Site) -> bool:
    """Whether several numbers are wanted by what reads the value, in the function that has made it
    or in those that are handed it."""
    at: int | None = None  # of a tuple that is handed out
    for depth, (code, lasti) in enumerate(made):
        source, node = written_at(code, lasti)
        if source is None or node is None:
            return False
        values: list[Op] = [node]
        if depth and isinstance(node, ast.Call):  # and others that call the same
            name = source.of(node.func)
            values = [one for one in source.nodes.every(ast.Call) if source.of(one.func) == name]
        reads = [read for one in values for read in _reads(source, one, at)]
        if any(_takes_several(source, one) for one in reads):
            return True
        handed_out = [*_handed_out(source, reads)]
        if not handed_out:
            return False
        at = handed_out[0]
    return False


def _handed_out(source: Source, reads: Iterable[ast.expr]) -> Iterator[int | None]:
    """The places of a tuple under which a function returns what they read, or None: by itself."""
    for one in reads:
        above = source.parents[one]
        if isinstance(above, ast.Return):
            yield None
        elif isinstance(above, ast.Tuple) and isinstance(source.parents[above], ast.Return):
            yield above.elts.index(one)


def _reads(source: Source, value: Op, at: int | None) -> Iterator[ast.expr]:
    """Where a value is read, or the part of a tuple, by itself and by the name that it is given;
    not in the other branch of a condition."""
    made = value if isinstance(value, ast.AugAssign) else source.parents[value]
    if isinstance(value, ast.expr):
        yield value
    targets = made.targets if isinstance(made, ast.Assign) else [getattr(made, "target", None)]
    for target in targets:
        if isinstance(target, ast.Tuple) and at is not None and at < len(target.elts):
            target = target.elts[at]
        for read in source.nodes.reads(target) if isinstance(target, ast.Name) else ():
            if not _are_apart(source, value, read):
                yield read


def _are_apart(source: Source, one: Op, other: Op) -> bool:
    """Whether they stand in two branches of one condition."""
    for around in ancestors(source, one):
        if isinstance(around, ast.If) and around in ancestors(source, other):
            first, second = (
                any(covers(part, at.lineno) for part in around.body) for at in (one, other)
            )
            if first != second:
                return True
    return False


def _takes_several(source: Source, read: ast.expr) -> bool:
    """Whether what an expression stands in adds up its elements, or takes some of them."""
    for inner, above in pairwise((read, *ancestors(source, read))):
        if getattr(above, "iter", None) is inner:  # of a loop, or of a comprehension
            return True
        if isinstance(above, ast.stmt):
            break
        if isinstance(above, ast.Subscript) and above.value is inner:
            return True
        op = spelled(source, above).name
        takes_some = has(op, Trait.BY_VALUE) and not has(op, Trait.BOUNDS)
        if isinstance(above, ast.Call) and (has(op, _OF_SEVERAL) or takes_some):
            return True
    return False
