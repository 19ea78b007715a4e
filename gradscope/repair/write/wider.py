"""A wider dtype where a number does not fit into its own, or a bound is lost in it (GS209)."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.ops.dtypes import wider
from gradscope.repair.write.culprit import ATOMS, Candidate, Culprit
from gradscope.repair.write.splice import spliced
from gradscope.repair.write.statements import rebound, within
from gradscope.rules.wording import phrases, proposals
from gradscope.source import Source, definition
from gradscope.source.arguments import spelled
from gradscope.source.literals import constant
from gradscope.source.tree import names_in, parts

TENSORS = frozenset(
    "self other mat1 mat2 tensor1 tensor2 x1 x2 target weight query key value".split()
)
BACK = {"float16": "half()", "bfloat16": "bfloat16()", "float32": "float()"}
_CASTS = {**BACK, "float64": "double()"}


def widened(culprit: Culprit, request: ask.WiderDtype) -> Iterator[Candidate]:
    """A wider dtype for all that the culprit's function is given, else for its operands alone:
    where one sum over half numbers overflows, the next one is close."""
    wide, method = wider(culprit.dtype or "")
    tensors = [
        node
        for role, node in culprit.operands.items()
        if role in TENSORS and not isinstance(node, ast.Constant)
    ]
    if culprit.finding.measured.autocast:
        yield from _outside_of_autocast(culprit, tensors, wide, method)
    edits = rebound(culprit, set().union(*map(names_in, tensors)), f"{{x}}.{method}")
    if edits:
        yield from within_function(culprit, edits, wide)
        yield Candidate(f"compute what follows in {wide}", edits)
    nodes = culprit.source.nodes
    for node in tensors[:1]:
        meaning = definition(culprit.source, node)
        if meaning is not None and nodes.function(meaning) is not nodes.module:
            text = f"{culprit.text(meaning)}.{method}"
            yield culprit.written(f"compute what follows in {wide}", meaning, text)
    for chosen in (tensors[:1], tensors):
        if chosen:
            casts = (culprit.replace(node, f"{culprit.text(node)}.{method}") for node in chosen)
            title = proposals.WIDER.format(op=phrases.spelled(culprit.finding.op), dtype=wide)
            yield Candidate(title, tuple(casts))
    yield from _widened_before(culprit, wide, method)
    if culprit.dtype == "float16":
        yield from _bfloat16(culprit)


def _outside_of_autocast(
    culprit: Culprit, tensors: list[ast.expr], wide: str, method: str
) -> Iterator[Candidate]:
    """The statement alone in the wider dtype, in a block where nothing is cast back."""
    source, statement = culprit.source, culprit.statement
    nodes = tensors or (culprit.call.args if culprit.call is not None else [])
    kinds = (one.device.partition(":")[0] for one in culprit.finding.tensors if one.device)
    kind = next(kinds, "")
    if not nodes or not kind or statement is None or hasattr(statement, "body"):
        return
    text = spliced(source, (culprit.replace(one, f"{culprit.text(one)}.{method}") for one in nodes))
    start, end = source.extent(statement)
    text = text[start : end + len(text) - len(source.text)]
    opening = f'with {culprit.torch("torch.autocast(")}"{kind}", enabled=False)'
    title = f"leave autocast for this, and compute it in {wide}"
    yield Candidate(title, (source.replaced(statement, within(source, opening, statement, text)),))


def within_function(culprit: Culprit, widening: tuple[Edit, ...], wide: str) -> Iterator[Candidate]:
    """The wider dtype inside of the function alone, whose caller gets the dtype that it had."""
    back = BACK.get(culprit.dtype or "")
    where = culprit.source.nodes.function(culprit.node) if culprit.node is not None else None
    if back is None or where is None:
        return
    values = [node.value for node in parts(where, ast.Return)]
    if len(values) == 1 and (value := values[0]) is not None:
        narrowed = culprit.replace(value, f"({culprit.source.of(value)}).{back}")
        function = getattr(where, "name", "this")
        title = f"compute `{function}` in {wide}, and give back {culprit.dtype}"
        yield Candidate(title, (*widening, narrowed))


def converted(culprit: Culprit, request: ask.CastOperand) -> Iterator[Candidate]:
    """`x.float()` where the name of the operand is given its value, else where the op reads it."""
    source, cast = culprit.source, _CASTS.get(request.wanted)
    reads = [one for one in parts(culprit.node, ast.expr) if source.of(one) == request.name]
    read = next(iter(reads), culprit.operands.get(request.role))
    if cast is None or read is None:
        return
    for node in (definition(source, read), read):
        if node is not None:
            text = f"{culprit.text(node)}.{cast}"
            yield culprit.written(f"convert it to {request.wanted}", node, text)


def _widened_before(culprit: Culprit, wide: str, method: str) -> Iterator[Candidate]:
    """A wider dtype where the operand was flushed to 0, which is before the culprit reads it."""
    for node in culprit.related("birth"):
        found = spelled(culprit.source, node)
        if (first := found.first) is not None and not isinstance(first, ast.Constant):
            title = proposals.WIDER.format(op=found.name, dtype=wide)
            yield culprit.written(title, first, f"{culprit.text(first)}.{method}")


def _bfloat16(culprit: Culprit) -> Iterator[Candidate]:
    """bfloat16 wherever the file says float16: as small, with the range of float32."""
    edits = [
        culprit.source.renamed(node, "bfloat16")
        for node in culprit.source.nodes.every(ast.Attribute)
        if culprit.dotted(node) in ("torch.float16", "torch.half")
        or (node.attr == "half" and isinstance(culprit.source.parents.get(node), ast.Call))
    ]
    yield Candidate("use bfloat16, which has the range of float32", tuple(edits))


# What torch computes in the dtype of its operands, under autocast too.
_COMPUTES = frozenset(
    "sigmoid softmax tanh erf exp expm1 log log1p sqrt rsqrt pow abs neg add sub mul div reciprocal"
    " sum mean prod var std norm normalize cosine_similarity pairwise_distance clamp relu softplus"
    " sin cos minimum maximum max min amax amin squeeze unsqueeze".split()
)


def widened_bound(culprit: Culprit, request: ask.WidenBound) -> Iterator[Candidate]:
    """`torch.sigmoid(logits.float()).clamp(...)`: the cast where the low precision comes in, which
    may be in the function that calls. What has to go on in the dtype gets it back behind that."""
    wide, method = wider(culprit.dtype)
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
