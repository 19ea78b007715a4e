"""What a bound of half precision is of, in float32 (GS209)."""

import ast
from collections.abc import Iterator

from gradscope.facts import requests as ask
from gradscope.ops.dtypes import wider as wider_than
from gradscope.repair.write.culprit import ATOMS, Candidate, Culprit
from gradscope.repair.write.wider import BACK, within_function
from gradscope.source import Source, definition
from gradscope.source.arguments import spelled
from gradscope.source.literals import constant

# What torch computes in the dtype of its operands, under autocast too.
_COMPUTES = frozenset(
    "sigmoid softmax tanh erf exp expm1 log log1p sqrt rsqrt pow abs neg add sub mul div reciprocal"
    " sum mean prod var std norm normalize cosine_similarity pairwise_distance clamp relu softplus"
    " sin cos minimum maximum max min amax amin squeeze unsqueeze".split()
)


def widened(culprit: Culprit, request: ask.WidenBound) -> Iterator[Candidate]:
    """`torch.sigmoid(logits.float()).clamp(...)`: the cast where the low precision comes in, which
    may be in the function that calls. What has to go on in the dtype gets it back behind that."""
    wide, method = wider_than(culprit.dtype)
    source, title = culprit.source, f"compute what follows in {wide}"
    use = next(culprit.related("use"), None)
    reads = spelled(source, use).positional if use is not None else ()
    first = spelled(source, culprit.node).positional[:1]
    made = [one for one in map(culprit.at, request.made) if one is not None]
    begun = [*_entering(source, *(made or (culprit.node,)))]
    here = [*_entering(source, culprit.node)]
    # Its other operand has a gradient of its own that is as large as the bound is small.
    both = [*begun, *_entering(source, *reads)] if len(reads) > 1 else begun
    ways = (both, begun, here, here[:1], first)
    for nodes in dict.fromkeys(tuple(dict.fromkeys(one)) for one in ways):
        casts = {one: f"{culprit.text(one)}.{method}" for one in nodes}
        edits = tuple(culprit.replace(one, text) for one, text in casts.items())
        yield Candidate(title, edits)
        if not culprit.finding.measured.autocast:
            yield from within_function(culprit, edits, wide)
            yield from _narrowed(culprit, use, casts, wide)


def _narrowed(
    culprit: Culprit, use: ast.expr | None, casts: dict[ast.expr, str], wide: str
) -> Iterator[Candidate]:
    """Up to the end of the statement in which the op stands that breaks."""
    source, back = culprit.source, BACK.get(culprit.dtype)
    statement = source.nodes.statement(use) if use is not None else None
    whole = statement.value if isinstance(statement, ast.Assign | ast.Return) else None
    if back is None or whole is None:
        return
    parts = {one: text for one, text in casts.items() if one in ast.walk(whole)}
    edits = (culprit.replace(one, text) for one, text in casts.items() if one not in parts)
    narrow = culprit.replace(whole, f"({source.written(whole, parts)}).{back}")
    title = f"compute this in {wide}, and give back {culprit.dtype}"
    yield Candidate(title, (*edits, narrow))


def _entering(source: Source, *nodes: ast.AST | None) -> Iterator[ast.expr]:
    """What goes into the ops that have made the values of expressions, also line by line."""
    for node in nodes:
        made = definition(source, node) or node
        op = spelled(source, made)
        if op.name in _COMPUTES:
            yield from _entering(source, *op.positional)
        elif isinstance(node, ATOMS) and constant(source, node) is None:
            if not isinstance(getattr(node, "ctx", None), ast.Store):  # `x += eps`
                yield node
