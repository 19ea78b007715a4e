"""Guards: keep an operand off the edge of its op (epsilon, clamp-domain)."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.ops.cures import PROBABILITY
from gradscope.ops.dtypes import Margin, eps_for
from gradscope.ops.edges import Nature
from gradscope.ops.patterns import EPSILON
from gradscope.repair.write import limits
from gradscope.repair.write.culprit import (
    Candidate,
    Culprit,
    can_repeat,
    filled,
    is_count,
    on_edges,
    operand_of,
)
from gradscope.repair.write.statements import for_all_readers
from gradscope.repair.write.uses import Uses
from gradscope.rules.fixes import without_value
from gradscope.rules.reading import evidence
from gradscope.rules.wording import phrases, proposals
from gradscope.source import counts, definition, literals
from gradscope.source.arguments import called, canonical, spelled
from gradscope.source.tree import parts

DECOMPOSITIONS = frozenset(("svd", "eigh", "eig", "eigvals"))
_DISTRIBUTIONS = "torch.distributions."
FLOORS = (Margin.ROOT, Margin.DENOMINATOR, Margin.LOG)


def guarded(culprit: Culprit) -> Iterator[Candidate]:
    """The op's own guards around its operand: `sqrt(v)` -> `sqrt(v.clamp_min(1e-12))`."""
    yield from _under_root(culprit)
    for edge, node in on_edges(culprit):
        if not edge.cure.guard:
            continue
        yield from _number(culprit, edge, node)
        yield from _bounded_for_all(culprit, edge, node)
        yield from _beside_epsilon(culprit, edge, node)
        yield from _by_magnitude(culprit, node)
        guards = [edge.cure.guard]
        if edge.cure.margin is Margin.EXPONENT:  # half of it, where the result is too large still
            guards.append(
                guards[0].replace("{eps}", f"{eps_for(culprit.dtype, Margin.EXPONENT) / 2:g}")
            )
        kind = _kind(edge)
        for number, guard in enumerate(guards):
            text = filled(culprit, edge, guard, _unclamped(culprit, edge, node))
            if text is not None:
                title = _title(kind, culprit, edge, node) + (
                    ", well below its end" if number else ""
                )
                yield culprit.written(title, node, text, kind)
    yield from _moved_inside(culprit)
    yield from _apart(culprit)
    yield from _added(culprit)
    yield from _upstream(culprit)


def _moved_inside(culprit: Culprit) -> Iterator[Candidate]:
    """`(v + eps).sqrt()` for `v.sqrt() + eps`, which comes too late for the root's own slope."""
    source, root = culprit.source, culprit.node
    found, whole = spelled(source, root), source.parents.get(root) if root is not None else None
    if not isinstance(root, ast.expr) or found.name != "sqrt" or not isinstance(whole, ast.BinOp):
        return
    under, eps = found.first, whole.right if whole.left is root else whole.left
    written = literals.number(source, eps)
    value = written.value if written is not None else None
    is_small = isinstance(value, int | float) and 0 < value <= EPSILON
    if under is not None and isinstance(whole.op, ast.Add) and is_small:
        text = source.written(root, {under: f"({culprit.text(under)} + {source.of(eps)})"})
        yield culprit.written("add the epsilon under the root", whole, text, "epsilon")


def divided_by_one(culprit: Culprit, request: ask.DivideByOne) -> Iterator[Candidate]:
    """A divisor that is 0 where there is nothing to divide: a count kept at 1, else 1 in its place,
    which leaves every other quotient as it is; a negative power of 0 is 0. A quotient that has a
    limit is taken beside it: where the source shows that, and where the runs do."""
    yield from limits.of_power(culprit)
    yield from limits.towards(culprit)
    yield from _one_instead(culprit, request)
    yield from limits.towards(culprit, known=False)


def _one_instead(culprit: Culprit, request: ask.DivideByOne) -> Iterator[Candidate]:
    edge = next(culprit.edges(), None)
    node = operand_of(culprit, edge) if edge is not None else None
    if edge is None or node is None:
        return
    if edge.argument == "self":
        node = _root(culprit) or node
        if can_repeat(culprit, node) and isinstance(culprit.node, ast.expr):
            title, code = without_value(edge, _short(culprit, node, edge), culprit.text(node))
            yield culprit.written(title, culprit.node, f"{culprit.text(culprit.node)}{code}")
        return
    if (root := _root(culprit)) is not None:
        if can_repeat(culprit, root) and _is_only_divided_by(culprit, root):
            where, text = culprit.torch("torch.where("), culprit.text(root)
            title = proposals.NOTHING.format(what=_short(culprit, root, edge))
            length = f"{where}{text} > 0, {culprit.source.of(root)}, 1.0)"
            yield culprit.written(title, root, length)
        yield from _under_root(culprit)
        return
    what = _short(culprit, node, edge)
    if is_count(culprit, edge) or counts(culprit.source, node):
        title = proposals.COUNTED.format(what=what)
        made = definition(culprit.source, node)
        counted = [
            culprit.written(title, part, f"{culprit.text(part)}.clamp(min=1)")
            for part in (node, made)
            if part is not None
        ]
        yield from _here_or_for_all(*counted)
        if made is not None:
            return
    one = "1" if request.is_total else "1.0"  # as an integer it is no number to be varied
    template = f"torch.where({{x}} != 0, {{x}}, {one})"
    one_instead = filled(culprit, edge, template, node)
    if one_instead is None:
        return
    whole = culprit.torch(template)
    edits = for_all_readers(culprit, node, whole) if isinstance(node, ast.Name) else ()
    here = culprit.written(proposals.NOTHING.format(what=what), node, one_instead)
    for_all = Candidate(proposals.FOR_ALL.format(name=culprit.source.of(node)), edits)
    yield from _here_or_for_all(here, for_all)


def _here_or_for_all(*ways: Candidate) -> Iterator[Candidate]:
    """One of them may do alone: what breaks next may be made of the same name."""
    written = [one for one in ways if one.edits]
    if len(written) > 1:
        yield from (replace(one, alone=True) for one in written)
    yield from written


def _under_root(culprit: Culprit) -> Iterator[Candidate]:
    """A square root that is divided by, or whose logarithm is taken, is guarded under the root, at
    the culprit or where it is made: beside it, the root's own slope would stay infinite."""
    under = _root(culprit)
    if under is not None:
        text = f"{culprit.text(under)}.clamp_min({eps_for(culprit.dtype, Margin.ROOT):g})"
        title = f"keep {_short(culprit, under, None)} above 0 under the root"
        yield culprit.written(title, under, text, "epsilon")


def _root(culprit: Culprit) -> ast.expr | None:
    """What stands under the root that is divided by, or whose logarithm is taken."""
    for edge in culprit.edges():
        if edge.cure.margin not in (Margin.DENOMINATOR, Margin.LOG):
            continue
        for node in (operand_of(culprit, edge), _made(culprit, edge)):
            if (root := spelled(culprit.source, node)).name == "sqrt":
                return root.first
    return None


def _is_only_divided_by(culprit: Culprit, root: ast.expr) -> bool:
    """Whether every reader of a square root divides by it: to any other it would be 1 and not 0."""
    made = culprit.source.parents[root]
    while not (isinstance(made, ast.expr) and spelled(culprit.source, made)):
        made = culprit.source.parents[made]
    uses = Uses.of(culprit.source, made)
    return uses is not None and all(_is_divisor(culprit, node) for node in uses.readers)


def _is_divisor(culprit: Culprit, node: ast.expr) -> bool:
    quotient = spelled(culprit.source, culprit.source.parents[node])
    return quotient.name == "div" and node in quotient.positional[1:]


def _bounded_for_all(culprit: Culprit, edge: Edge, node: ast.expr) -> Iterator[Candidate]:
    """An exponent that other lines read as well, such as a log-variance, bounded where the function
    gets it: those lines would speak of another variance than the exponential."""
    names = [*parts(node, ast.Name)]
    has_call = any(parts(node, ast.Call))
    if edge.cure.margin is not Margin.EXPONENT or has_call or len(names) != 1:
        return
    if isinstance(culprit.source.nodes.owner(names[0]).node, ast.Module):
        return
    most, op = eps_for(culprit.dtype, Margin.EXPONENT), phrases.spelled(culprit.finding.op)
    bounds = [most / share for share in (2, 4, 10)]  # the last is that of normalising flows
    part = _reads_of_part(culprit, node)
    for bound in bounds if part else ():
        name = culprit.source.of(node)
        text = f"{name}.clamp(-{bound:g}, {bound:g})"
        edits = tuple(culprit.replace(one, text) for one in part)
        title = proposals.BOUNDED.format(name=name, bound=bound, op=op)
        yield Candidate(title, edits, "clamp-domain")
    for bound in bounds[1:2] if part else bounds:
        edits = for_all_readers(culprit, names[0], f"{{x}}.clamp(-{bound:g}, {bound:g})")
        title = proposals.BOUNDED.format(name=names[0].id, bound=bound, op=op)
        yield Candidate(title, edits, "clamp-domain")


def _beside_epsilon(culprit: Culprit, edge: Edge, node: ast.expr) -> Iterator[Candidate]:
    """`v.clamp_min(0) + eps` for `v + eps`, which lies below 0 all the same: what rounding has made
    negative is as small as can be, and the program says itself what is added to that."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return
    if edge.cure.margin not in FLOORS:
        return
    for of, eps in ((node.left, node.right), (node.right, node.left)):
        if 0 < (literals.constant(culprit.source, eps) or 0) <= EPSILON:
            text = culprit.source.written(node, {of: f"{culprit.text(of)}.clamp_min(0)"})
            title = f"keep {_short(culprit, of, None)} at 0 or above, beside the epsilon"
            yield culprit.written(title, node, text, "clamp-domain")


def _by_magnitude(culprit: Culprit, node: ast.expr) -> Iterator[Candidate]:
    """`z.abs() ** p` for `z ** p` of a z below 0, where p is learnt and an even number by now: the
    values stay, and the slope in p is that of `|z| ** p`."""
    values = culprit.values
    power, least = values.get("exponent", 0.0), values.get("self.min", values.get("self", 0.0))
    if canonical(culprit.finding.op) == "pow" and power and power % 2 == 0 and least < 0:
        title = f"take the magnitude of {_short(culprit, node, None)}: an even power is the same"
        yield culprit.written(title, node, f"{culprit.text(node)}.abs()", "stable-op")


def _reads_of_part(culprit: Culprit, node: ast.expr) -> list[ast.Subscript]:
    """Where `t[..., 1]` is read, if what else is read of `t` are other parts: they mean another
    thing. Empty if not."""
    source = culprit.source
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return []
    found = [source.parents[one] for one in source.nodes.reads(node.value)]
    parts_of = [one for one in found if isinstance(one, ast.Subscript)]
    is_told = not any(
        isinstance(each, ast.Name) for one in parts_of for each in ast.walk(one.slice)
    )
    texts = {source.of(one) for one in parts_of}
    if len(parts_of) < len(found) or not is_told or len(texts) < 2:
        return []
    return [one for one in parts_of if source.of(one) == source.of(node)]


def _made(culprit: Culprit, edge: Edge) -> ast.expr | None:
    """Where the operand of the edge was made, in the same file."""
    chain = culprit.finding.chain
    made = evidence.made_by(chain[0], edge.argument) if chain else None
    return culprit.at(made.location) if made is not None else None


def _number(culprit: Culprit, edge: Edge, node: ast.expr) -> Iterator[Candidate]:
    """A Python number has no `clamp_min`."""
    given = {one.role for one in culprit.finding.tensors}
    is_number = given and edge.argument not in given and culprit.values.get(edge.argument) == 0
    if is_number and isinstance(node, ast.Name) and edge.cure.margin in FLOORS:
        text = f"max({culprit.source.of(node)}, {culprit.eps(edge)})"
        yield culprit.written(_title("epsilon", culprit, edge, node), node, text, "epsilon")


def _upstream(culprit: Culprit) -> Iterator[Candidate]:
    """The guard where the operand is made, for an op that a library calls: the line of the
    culprit does not write the operand."""
    edge = next((edge for edge in culprit.edges() if edge.cure.guard), None)
    if edge is None or operand_of(culprit, edge) is not None:
        return
    kind = _kind(edge)
    for name, node in _asked_of_a_distribution(culprit):
        # A density may be infinite at the ends of what it is of, which are 0 and 1 or 0 alone.
        ends = [PROBABILITY.guard, *([edge.cure.guard] if name == "log_prob" else [])]
        for text in filter(None, (filled(culprit, edge, one, node) for one in ends)):
            title = proposals.guarded("clamp-domain", _short(culprit, node, edge), name, edge)
            yield culprit.written(title, node, text, "clamp-domain")
    for node in culprit.related("birth"):
        given = _parameters(culprit, node)
        texts = [(one, filled(culprit, edge, edge.cure.guard, one)) for one in given or [node]]
        edits = (culprit.replace(one, text) for one, text in texts if text is not None)
        yield Candidate(_title(kind, culprit, edge, node), tuple(edits), kind)


def _asked_of_a_distribution(culprit: Culprit) -> Iterator[tuple[str, ast.expr]]:
    """The probability whose quantile the culprit asks a distribution of torch's for, or the value
    whose density, and which of them."""
    inner = (one.location for one in culprit.finding.related if one.role == "inner")
    names = {one.function.rpartition(".")[2] for one in inner} & {"icdf", "log_prob"}
    yield from ((name, node) for name in names for node in getattr(culprit.node, "args", ())[:1])


def _parameters(culprit: Culprit, node: ast.expr) -> list[ast.expr]:
    """What a distribution of torch's is made of, which is no tensor itself and computes with them;
    empty for what is none."""
    if not (isinstance(node, ast.Call) and culprit.dotted(node).startswith(_DISTRIBUTIONS)):
        return []
    named = [one.value for one in node.keywords if one.arg != "validate_args"]
    return [one for one in (*node.args, *named) if not isinstance(one, ast.Constant)]


def _unclamped(culprit: Culprit, edge: Edge, node: ast.expr) -> ast.expr:
    """What an existing `x.clamp(low, high)` or `x.clamp(min=0)` clamps, where the guard's own clamp
    takes its place. The guards are told apart by their text, which the op table wrote."""
    found = spelled(culprit.source, node)
    if found.name != "clamp" or not found.positional:
        return node
    if edge.cure.guard.startswith("{x}.clamp("):
        return found.positional[0]
    bounds = [*found.positional[1:], *found.keywords.values()]
    only = bounds[0] if len(bounds) == 1 else None
    is_zero = isinstance(only, ast.Constant) and only.value == 0
    is_max = isinstance(node, ast.Call) and called(node).startswith("clamp_max")
    is_ceiling = is_max or "max" in found.keywords
    replaces = edge.cure.guard.startswith("{x}.clamp_min(") and is_zero and not is_ceiling
    return found.positional[0] if replaces else node


def _apart(culprit: Culprit) -> Iterator[Candidate]:
    """Equal or zero values of a square matrix moved apart by a small, uneven diagonal."""
    node, op = culprit.operands.get("self"), canonical(culprit.finding.op)
    if node is None or not can_repeat(culprit, node):
        return
    text = culprit.text(node)
    if op == "qr":
        eye = culprit.torch("torch.eye(")
        diagonal = f"{text} + 1e-4 * {eye}*{text}.shape[-2:]).to({text})"
        yield culprit.written("add a small diagonal", node, diagonal, "epsilon")
    for eps in (1e-4, 1e-2) if op in DECOMPOSITIONS else ():
        uneven = f"{culprit.torch('torch.arange(')}{text}.shape[-1]).to({text}).diag()"
        title = f"move equal values of `{op}` apart by {eps:g}"
        yield culprit.written(title, node, f"{text} + {eps:g} * {uneven}", "epsilon")


def _added(culprit: Culprit) -> Iterator[Candidate]:
    """`+ eps` on the operand, where the table has no guard or the guard did not do; on a matrix it
    would be the same number in all places."""
    if any(edge.nature is Nature.DEGENERATE for edge in culprit.edges()):
        return
    for edge, node in on_edges(culprit):
        if edge.cure.margin in FLOORS:
            text = f"{culprit.text(node)} + {culprit.eps(edge)}"
            title = _title("epsilon", culprit, edge, node)
            yield culprit.written(title, node, text, "epsilon")
            return


def _kind(edge: Edge) -> str:
    """In words; which of the two a fix counts as is for the rule to say, which saw the values."""
    return "epsilon" if edge.cure.margin in FLOORS else "clamp-domain"


def _title(kind: str, culprit: Culprit, edge: Edge, node: ast.expr) -> str:
    return proposals.guarded(kind, _short(culprit, node, edge), culprit.finding.op, edge)


def _short(culprit: Culprit, node: ast.expr, edge: Edge | None) -> str:
    """What an edge is of, in a sentence; None of what stands under a root."""
    text = culprit.source.of(node)
    of = phrases.unnamed(culprit.finding.op, edge) if edge is not None else "what it is of"
    return f"`{text}`" if len(text) <= 30 and "\n" not in text else of
