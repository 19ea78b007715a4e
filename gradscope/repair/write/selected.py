"""What data tells of its elements: those that have a value are reduced over (guard-empty), and
those that are bad are told by the program's own mask."""

import ast
from collections.abc import Iterator
from contextlib import suppress

from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import (
    Candidate,
    Culprit,
    Ways,
    can_repeat,
    filled,
    infinity,
    operand_of,
)
from gradscope.repair.write.splice import after, keyword
from gradscope.repair.write.uses import Uses
from gradscope.rules.wording import proposals
from gradscope.source import Source, definition
from gradscope.source.arguments import spelled
from gradscope.source.meaning import reads_of
from gradscope.source.spans import alike, user_of

# Of each element its own, in one op with numbers or with as many elements.
ELEMENTWISE = frozenset(
    "abs add clamp cos div exp log log1p mul neg pow reciprocal sin sqrt sub tanh".split()
)
REDUCES = frozenset(("mean", "sum", "nanmean"))
COMPARES = frozenset(("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss"))


def selected(culprit: Culprit, request: ask.SelectElements) -> Iterator[Candidate]:
    """`((p - t) / t).abs().mean()` becomes `((p - t)[t != 0] / t[t != 0]).abs().mean()`: what is
    averaged is selected before the op, or behind it where other tensors meet the result, as on both
    sides of `F.l1_loss(a.log(), b.log())`."""
    edge = next(culprit.edges(), None)
    node = operand_of(culprit, edge) if edge is not None else None
    if edge is None or node is None or not can_repeat(culprit, node):
        return
    condition = filled(culprit, edge, edge.cure.condition, node)
    if condition is None or not isinstance(culprit.node, ast.expr):
        return
    whole, meets = _around(culprit, culprit.node)
    found = spelled(culprit.source, culprit.node)
    parts = (culprit.node,) if not found or found.method or meets else found.positional
    if meets:
        parts = (whole,)
    loss = spelled(culprit.source, culprit.source.parents[whole])
    if loss.name in COMPARES and not loss.keywords:
        parts = loss.positional
    elif not _is_reduced(culprit, whole):
        return
    chosen = [one for one in parts if not isinstance(one, ast.Constant)]
    edits = [culprit.replace(one, f"{culprit.text(one)}[{condition}]") for one in chosen]
    yield Candidate(proposals.SELECTED.format(condition=condition), tuple(edits))


def with_inf(culprit: Culprit, request: ask.FillByMask) -> Ways:
    """`x.masked_fill(c != 1, float("-inf"))` for `x + (1 - c) * float("-inf")`, and where nothing
    is added `torch.where(c != 1, float("-inf"), 0.0)` for the product."""
    source, node, found = culprit.source, culprit.node, spelled(culprit.source, culprit.node)
    meant = {one: definition(source, one) or one for one in found.positional}
    infinite = [one for one in meant if infinity(culprit, meant[one]) is not None]
    masks = [one for one in found.positional if one not in infinite]
    if not isinstance(node, ast.expr) or not (
        found.name == "mul" and len(infinite) == 1 == len(masks)
    ):
        return
    inf = source.of(infinite[0])
    match masks[0]:
        case ast.BinOp(ast.Constant(1), ast.Sub(), other):
            condition = f"{culprit.text(other)} != 1"
        case ast.Compare() | ast.UnaryOp(ast.Invert()) as mask:
            condition = source.of(mask)
        case mask:
            condition = f"{culprit.text(mask)} != 0"
    match source.parents[node]:
        case ast.BinOp(left, ast.Add(), right) as total:
            added = culprit.text(right if left is node else left)
            yield (culprit.replace(total, f"{added}.masked_fill({condition}, {inf})"),)
    text = culprit.torch(f"torch.where({condition}, {inf}, 0.0)")
    yield (culprit.replace(node, text),)


def cleaned(culprit: Culprit, request: ask.CleanByMask) -> Iterator[Candidate]:
    """By the program's own mask, or without the rows of a table that hold what is bad."""
    yield from _by_mask(culprit)
    for node in culprit.related("birth"):
        yield from _without_rows(culprit, node)


def _without_rows(culprit: Culprit, table: ast.expr) -> Iterator[Candidate]:
    """`data = data[data.isfinite().all(1)]` behind the line that makes a table, which is read by
    its columns alone: inputs and targets lose the same rows."""
    source = culprit.source
    made = source.nodes.statement(table)
    target = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    shapes = [one.shape for one in culprit.finding.tensors if one.role == "output"]
    if not isinstance(target, ast.Name) or not shapes or len(shapes[0]) != 2:
        return
    own = reads_of(source, target, made) or ()
    if len(own) < 2 or not all(_is_of_columns(source, one) for one in own):
        return
    name = target.id
    edits = after(source, made, f"{name} = {name}[{name}.isfinite().all(1)]")
    yield Candidate(proposals.WITHOUT_ROWS.format(name=name), edits)


def _is_of_columns(source: Source, node: ast.expr) -> bool:
    """`data[:, 3]`: all rows."""
    match source.parents[node]:
        case ast.Subscript(slice=ast.Tuple(elts=[ast.Slice(None, None, None), *_])):
            return True
    return False


def _by_mask(culprit: Culprit) -> Iterator[Candidate]:
    """`pred - target`, with `mask = ~target.isnan()` above it, reads
    `torch.where(mask, target, 0.0)`: NaN times a mask of 0 is NaN."""
    given = (*culprit.operands.values(), *getattr(culprit.node, "args", ()))  # or of a module
    operands = [one for one in dict.fromkeys(given) if isinstance(one, ast.Name)]
    for made in culprit.source.nodes.every(ast.Assign):
        mask = made.targets[0]
        negated = isinstance(made.value, ast.UnaryOp) and isinstance(made.value.op, ast.Invert)
        test = made.value.operand if isinstance(made.value, ast.UnaryOp) else made.value
        found = spelled(culprit.source, test)
        asked = found.first
        if found.name not in ("isnan", "isfinite"):
            continue
        for node in operands:
            is_it = isinstance(asked, ast.Name) and alike(asked, node)
            if not is_it or not isinstance(mask, ast.Name) or not _is_in_reach(culprit, mask, node):
                continue
            is_good = negated == (found.name == "isnan")
            parts = (node.id, "0.0") if is_good else ("0.0", node.id)
            title = proposals.CLEANED.format(mask=mask.id, name=node.id)
            where = culprit.torch(f"torch.where({mask.id}, {', '.join(parts)})")
            yield culprit.written(title, node, where)


def _is_in_reach(culprit: Culprit, mask: ast.Name, node: ast.Name) -> bool:
    """Whether a name that is bound once is so before a node, in the same function."""
    scope = culprit.source.nodes.scope(node).owner(mask.id)
    is_same = culprit.source.nodes.scope(mask).function is culprit.source.nodes.scope(node).function
    return is_same and len(scope.bindings.get(mask.id, ())) == 1 and mask.lineno < node.lineno


def _around(culprit: Culprit, node: ast.expr) -> tuple[ast.expr, bool]:
    """The largest expression whose elements are each made of the node's own, and whether another
    tensor has a part in that."""
    meets = False
    while True:
        above = user_of(culprit.source, node)
        found = spelled(culprit.source, above)
        is_operand = found.name in ELEMENTWISE and node in found.positional
        if not isinstance(above, ast.expr) or not is_operand:
            return node, meets
        others = (one for one in found.positional if one is not node)
        meets |= any(not isinstance(one, ast.Constant) for one in others)
        node = above


def _is_reduced(culprit: Culprit, whole: ast.expr) -> bool:
    """Whether all that is made of it is a mean or sum over all its elements."""
    uses = Uses.of(culprit.source, whole)
    for reader in uses.readers if uses is not None else ():
        last, meets = _around(culprit, reader)
        above = user_of(culprit.source, last)
        found = spelled(culprit.source, above)
        is_whole = len(found.positional) == 1 and not found.keywords
        if found.name not in REDUCES or not is_whole:
            return False
        if meets and reader is not whole:
            return False
    return uses is not None and bool(uses.readers)


# The triangles, with where they are given the diagonal at which they begin, and by what name.
_TRIANGLES = {
    "triu": (1, "diagonal"),
    "tril": (1, "diagonal"),
    "triu_indices": (2, "offset"),
    "tril_indices": (2, "offset"),
}


def diagonal_kept(culprit: Culprit, request: ask.ShiftDiagonal) -> Ways:
    """`torch.triu(mask, diagonal=1)` for what masks the diagonal as well; one further down for
    what is to be left."""
    source = culprit.source
    for call in source.nodes.every(ast.Call):
        written = spelled(source, call)
        if written.name not in _TRIANGLES:
            continue
        place, keyword_of = _TRIANGLES[written.name]
        given = written.keywords.get(keyword_of, next(iter(written.positional[place:]), None))
        diagonal = _integer(given)
        is_masked = written.name.startswith("triu") is request.up
        if diagonal != (0 if is_masked else -1 if request.up else 1):
            continue
        new = str(diagonal + (1 if request.up else -1))
        if given is None:
            edit = keyword(source, call, keyword_of, new)
        else:
            edit = culprit.replace(given, new)
        yield (edit,)


def _integer(node: ast.expr | None) -> int | None:
    """A literal; 0 where none is given."""
    if node is None:
        return 0
    with suppress(ValueError, TypeError):
        value = ast.literal_eval(node)
        return value if type(value) is int else None
    return None
