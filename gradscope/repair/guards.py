"""Guards: keep an operand off the edge of its op (epsilon, clamp-domain), or only where a mask
will throw the result away (masked-branch)."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from gradscope.facts import Phase
from gradscope.ops import Edge
from gradscope.ops.dtypes import Margin
from gradscope.repair.candidate import Candidate
from gradscope.repair.culprit import Culprit
from gradscope.rules import phrases
from gradscope.source import Mask, expression, mask
from gradscope.source.masks import definition, in_reach
from gradscope.source.operands import canonical, spelled

LONGEST_TWICE = 60  # characters of an operand that a condition may repeat
DECOMPOSITIONS = frozenset(("svd", "eigh", "eig", "eigvals"))
INFINITE = frozenset(
    f"{sign}{text}"
    for sign in ("", "-")
    for text in ('float("inf")', "inf", "math.inf", "np.inf", "numpy.inf", "torch.inf")
) | {'float("-inf")'}
FLOORS = (Margin.ROOT, Margin.DENOMINATOR, Margin.LOG)


def guarded(culprit: Culprit) -> Iterator[Candidate]:
    """The op's own guards around its operand: `sqrt(v)` -> `sqrt(v.clamp_min(1e-12))`."""
    for edge in culprit.edges():
        node = _operand(culprit, edge)
        if node is None or not edge.cure.guard:
            continue
        yield from _number(culprit, edge, node)
        text = _filled(culprit, edge, edge.cure.guard, _unclamped(culprit, edge, node))
        if text is not None:
            kind = "epsilon" if edge.cure.margin in FLOORS else "clamp-domain"
            yield Candidate(kind, _title(kind, culprit, node), (culprit.replace(node, text),))
    yield from _apart(culprit)
    yield from _added(culprit)
    yield from _upstream(culprit)


def _number(culprit: Culprit, edge: Edge, node: ast.expr) -> Iterator[Candidate]:
    """A Python number has no `clamp_min`."""
    given = {one.role for one in culprit.finding.tensors}
    is_number = given and edge.argument not in given and culprit.values.get(edge.argument) == 0
    if is_number and isinstance(node, ast.Name) and edge.cure.margin in FLOORS:
        text = f"max({culprit.source.of(node)}, {edge.cure.eps(culprit.dtype)})"
        edit = culprit.replace(node, text)
        yield Candidate("epsilon", _title("epsilon", culprit, node), (edit,))


def _upstream(culprit: Culprit) -> Iterator[Candidate]:
    """The guard where the operand is made, for an op that a library calls: the line of the
    culprit does not write the operand."""
    edges = [edge for edge in culprit.edges() if edge.cure.guard.startswith("{x}.clamp")]
    if not edges or _operand(culprit, edges[0]) is not None:
        return
    for related in culprit.finding.related:
        if related.role != "birth" or related.location.file != culprit.source.file:
            continue
        node = expression(culprit.source, related.location)
        if isinstance(node, ast.expr):
            text = _filled(culprit, edges[0], edges[0].cure.guard, node)
            if text is not None:
                kind = "epsilon" if edges[0].cure.margin in FLOORS else "clamp-domain"
                edit = culprit.replace(node, text)
                yield Candidate(kind, _title(kind, culprit, node), (edit,))


def _unclamped(culprit: Culprit, edge: Edge, node: ast.expr) -> ast.expr:
    """What an existing `x.clamp(low, high)` clamps, where the guard's own clamp takes its place."""
    found = spelled(culprit.source, node)
    is_clamp = (
        found is not None and found.name == "clamp" and edge.cure.guard.startswith("{x}.clamp(")
    )
    return found.positional[0] if found and is_clamp and found.positional else node


def _apart(culprit: Culprit) -> Iterator[Candidate]:
    """Equal or zero values of a square matrix moved apart by a small, uneven diagonal."""
    node, op = culprit.operands.get("self"), canonical(culprit.finding.op)
    eye = culprit.torch("torch.eye(")
    if op == "qr" and node is not None and eye is not None and can_repeat(culprit, node):
        text = culprit.text(node)
        edit = culprit.replace(node, f"{text} + 1e-4 * {eye}*{text}.shape[-2:]).to({text})")
        yield Candidate("epsilon", "add a small diagonal", (edit,))
    arange = culprit.torch("torch.arange(")
    if op not in DECOMPOSITIONS or node is None or arange is None:
        return
    if can_repeat(culprit, node):
        text = culprit.text(node)
        for eps in (1e-4, 1e-2):
            diagonal = f"{arange}{text}.shape[-1]).to({text}).diag()"
            edit = culprit.replace(node, f"{text} + {eps:g} * {diagonal}")
            yield Candidate("epsilon", f"move equal values of `{op}` apart by {eps:g}", (edit,))


def _added(culprit: Culprit) -> Iterator[Candidate]:
    """`+ eps` on the operand, where the table has no guard or the guard did not do."""
    for edge in culprit.edges():
        node = _operand(culprit, edge)
        if node is not None and edge.cure.margin in FLOORS:
            text = f"{culprit.text(node)} + {edge.cure.eps(culprit.dtype)}"
            yield Candidate(
                "epsilon", _title("epsilon", culprit, node), (culprit.replace(node, text),)
            )
            return


def _title(kind: str, culprit: Culprit, node: ast.expr) -> str:
    what, op = _short(culprit, node), phrases.spelled(culprit.finding.op)
    if kind == "epsilon":
        return f"keep {what} off the singularity of `{op}`"
    return f"keep {what} inside the domain of `{op}`"


def _short(culprit: Culprit, node: ast.expr) -> str:
    text = culprit.source.of(node)
    return f"`{text}`" if len(text) <= 30 and "\n" not in text else "the operand"


def masked(culprit: Culprit) -> Iterator[Candidate]:
    """A harmless operand where the result is thrown away: `torch.where(x > 0, x, 1.0) ** 0.5`.

    The mask's own condition when it is a name in reach, then the op's condition, then the
    mask's condition written out.
    """
    yield from _both_infinite(culprit)
    yield from _finite_constant(culprit)
    edges = [edge for edge in culprit.edges() if _operand(culprit, edge) is not None]
    if not edges:
        return
    edge = edges[0]
    node = _operand(culprit, edge)
    assert node is not None
    harmless = edge.cure.harmless or "1.0"
    conditions = list(_mask_conditions(culprit))
    names = [pair for pair in conditions if pair[0].isidentifier()]
    own = list(_own_conditions(culprit, edges, node))
    rest = [pair for pair in conditions if pair not in names]
    op = phrases.spelled(culprit.finding.op)
    title = f"give `{op}` a harmless operand where its result is thrown away"
    seen = set()
    for condition, kept in (*names, *own, *rest):
        text = _where(culprit, condition, kept, node, harmless)
        if text not in seen:
            seen.add(text)
            edit = culprit.replace(node, text)
            yield Candidate("masked-branch", title, (edit,), same=True)
    yield from _restored(culprit, edge, own)


def _restored(
    culprit: Culprit, edge: Edge, conditions: list[tuple[str, bool]]
) -> Iterator[Candidate]:
    """The harmless operand, and around the op the value that it had: for masks that are made from
    the value itself (`d[d == inf] = 0`), and for a sort or a minimum that goes by it."""
    where, node = culprit.torch("torch.where("), culprit.node
    operand = _operand(culprit, edge)
    in_place = culprit.overwritten is not None  # there is no result to put back into a mask
    if where is None or operand is None or in_place or not isinstance(node, ast.expr):
        return
    start = culprit.source.extent(node)[0]
    first, last = culprit.source.extent(operand)
    text = culprit.source.of(node)
    value = _value(culprit) or f"({text}).detach()"
    for condition, kept in conditions[:1]:
        safe = _where(culprit, condition, kept, operand, edge.cure.harmless or "1.0")
        again = f"{text[: first - start]}{safe}{text[last - start :]}"
        if "\n" in again:
            again = ast.unparse(ast.parse(f"({again})", mode="eval"))
        op = phrases.spelled(culprit.finding.op)
        title = f"give `{op}` a harmless operand there, and the result the value it had"
        edit = culprit.replace(node, f"{where}{condition}, {again}, {value})")
        yield Candidate("masked-branch", title, (edit,), same=True)


def _value(culprit: Culprit) -> str | None:
    """What the op gives on its edge, as source text; None where that is not one known number."""
    chain = culprit.finding.chain
    forward = [event.output for event in chain if event.phase is not Phase.BACKWARD]
    for one in culprit.finding.tensors:
        is_one = sum(map(bool, (one.nan, one.posinf, one.neginf))) == 1
        if one.role == "output" and one in forward and is_one and one.at is not None:
            return f'float("{one.at}")'
        if one.role in ("result", "out") and one.at == 0:
            return "0.0"
    return None


def _both_infinite(culprit: Culprit) -> Iterator[Candidate]:
    """inf - inf: where both sides are infinite, the difference is thrown away afterwards."""
    sides = [culprit.operands.get(role) for role in ("self", "other")]
    values = [culprit.values.get(role) for role in ("self", "other")]
    infinite = all(value is not None and math.isinf(value) for value in values)
    where, node = culprit.torch("torch.where("), culprit.node
    if not infinite or where is None or not isinstance(node, ast.BinOp):
        return
    if all(side is not None and can_repeat(culprit, side) for side in sides):
        kept = " & ".join(f"{culprit.text(side)}.isfinite()" for side in sides if side is not None)
        edit = culprit.replace(node, f"{where}{kept}, {culprit.source.of(node)}, 0.0)")
        title = "let the difference of two infinite elements be 0"
        yield Candidate("masked-branch", title, (edit,))


def _finite_constant(culprit: Culprit) -> Iterator[Candidate]:
    """A constant of the file that is inf, and meets a 0: a large finite number in its place."""
    names = {node.id for node in culprit.operands.values() if isinstance(node, ast.Name)}
    for made in culprit.source.tree.body:
        if not isinstance(made, ast.Assign) or not isinstance(made.targets[0], ast.Name):
            continue
        name, text = made.targets[0].id, culprit.source.of(made.value)
        if name in names and text.replace(" ", "").replace("'", '"') in INFINITE:
            large = "-1e30" if "-" in text else "1e30"
            title = f"make `{name}` a large finite number"
            yield Candidate("masked-branch", title, (culprit.replace(made.value, large),))


def _where(culprit: Culprit, condition: str, kept: bool, node: ast.expr, harmless: str) -> str:
    operand = culprit.source.of(node)
    where = culprit.torch("torch.where(")
    if where is not None:
        first, second = (operand, harmless) if kept else (harmless, operand)
        return f"{where}{condition}, {first}, {second})"
    condition = condition if kept else f"~({condition})"
    return f"{culprit.text(node)}.where({condition}, {harmless})"


def _own_conditions(
    culprit: Culprit, edges: list[Edge], node: ast.expr
) -> Iterator[tuple[str, bool]]:
    if not can_repeat(culprit, node):
        return
    for edge in edges:
        if edge.cure.condition and _operand(culprit, edge) is node:
            text = _filled(culprit, edge, edge.cure.condition, node)
            if text is not None:
                yield text, True


def _mask_conditions(culprit: Culprit) -> Iterator[tuple[str, bool]]:
    """(condition, whether the value is kept where it holds), for masks in the culprit's file."""
    for related in culprit.finding.related:
        if related.role != "mask" or related.location.file != culprit.source.file:
            continue
        place = expression(culprit.source, related.location)
        found = mask(culprit.source, place, culprit.node) if place is not None else None
        if found is None:
            continue
        text = _condition(culprit, found)
        if text is not None:
            for kept in (True, False) if found.kept is None else (found.kept,):
                yield text, kept


def _condition(culprit: Culprit, found: Mask) -> str | None:
    """The condition as it can be written at the culprit: itself, or the definition of its name."""
    assert culprit.node is not None
    node = found.condition
    if not in_reach(culprit.source, node, culprit.node):
        meaning = definition(culprit.source, node) if isinstance(node, ast.Name) else None
        if meaning is None or not in_reach(culprit.source, meaning, culprit.node):
            return None
        node = meaning
    text = culprit.source.of(node)
    if "\n" in text:
        return None
    return f"{culprit.text(node)}.bool()" if found.number else text


def _operand(culprit: Culprit, edge: Edge) -> ast.expr | None:
    node = culprit.operands.get(edge.argument)
    if node is None and edge.argument in ("A", "input"):  # what other schemas call self
        node = culprit.operands.get("self")
    if isinstance(culprit.node, ast.AugAssign) and node is culprit.node.target:
        return None
    if node is not None and node is culprit.overwritten and not can_repeat(culprit, node):
        return None
    return None if isinstance(node, ast.Constant) else node


def can_repeat(culprit: Culprit, node: ast.expr) -> bool:
    """Whether an operand may be written twice: short, and evaluating it again changes nothing."""
    if len(culprit.source.of(node)) > LONGEST_TWICE:
        return False
    return not any(
        isinstance(part, ast.Call) and not _is_pure(culprit, part) for part in ast.walk(node)
    )


def _is_pure(culprit: Culprit, call: ast.Call) -> bool:
    """A torch function or a method that neither draws random numbers nor writes in place."""
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
    dotted = culprit.names.dotted(call.func) or ""
    is_torch = dotted.startswith("torch.") or isinstance(call.func, ast.Attribute)
    impure = ("rand", "dropout", "bernoulli", "normal", "multinomial", "pop", "next", "read")
    return is_torch and not name.endswith("_") and not any(word in name for word in impure)


def _filled(culprit: Culprit, edge: Edge, template: str, node: ast.expr) -> str | None:
    """A template of the op table with the operands' source in it; None where one is not written."""
    if template.count("{x}") > 1 and not can_repeat(culprit, node):
        return None
    texts = {role: culprit.text(part) for role, part in culprit.operands.items()}
    eps = edge.cure.eps(culprit.dtype)
    spelled = culprit.torch(template)
    try:
        return spelled and spelled.format(**{**texts, "x": culprit.text(node), "eps": eps})
    except (KeyError, IndexError):
        return None
