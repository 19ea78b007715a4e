"""A harmless operand where a mask throws the result away (masked-branch)."""

import ast
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from gradscope.facts import Edit, Phase, Root, Subject
from gradscope.facts import requests as ask
from gradscope.ops import Edge, Nature
from gradscope.ops.traits import Trait, discards, has
from gradscope.repair.write.branches import by_branch
from gradscope.repair.write.culprit import (
    Candidate,
    Culprit,
    NoTorch,
    Unpatchable,
    can_repeat,
    filled,
    infinity,
    moved,
    on_edges,
)
from gradscope.repair.write.distributions import squashed
from gradscope.repair.write.forms import fit
from gradscope.repair.write.guards import guarded
from gradscope.repair.write.reading import Reading, atom
from gradscope.repair.write.training import optimizer_eps
from gradscope.repair.write.uses import given_to, returned
from gradscope.rules.reading import evidence
from gradscope.rules.wording import phrases, proposals
from gradscope.source import Mask, Source, definition, holds, mask
from gradscope.source.arguments import Spelled, spelled
from gradscope.source.hand_updates import Holder
from gradscope.source.spans import statement_at
from gradscope.source.tree import parts

_MAXIMA = frozenset(("amax", "max"))


def kept_off(culprit: Culprit, request: ask.KeepOff) -> Iterator[Candidate]:
    """The operand kept off the edge for good, or the value that it gives there kept."""
    if request.used is not None:
        with suppress(Unpatchable):
            yield from guarded(moved(culprit, request.used))
        return
    if culprit.finding.phase is Phase.OPTIMIZER:
        yield from optimizer_eps(culprit)
    yield from squashed(culprit)
    yield from guarded(culprit)
    yield from _value_kept(culprit)


def masked(culprit: Culprit, request: ask.HarmlessOperand) -> Iterator[Candidate]:
    """A harmless operand, else one that is kept off the edge."""
    yield from _harmless(culprit, hidden=request.hidden)
    yield from guarded(culprit)


def _harmless(culprit: Culprit, *, hidden: bool) -> Iterator[Candidate]:
    """A harmless operand where the result is thrown away: `torch.where(x > 0, x, 1.0) ** 0.5`.

    The program's own mask where it is in reach, then the op's condition. What goes by the value
    itself gets the value that it had.
    """
    yield from _both_infinite(culprit)
    yield from _finite_constant(culprit)
    yield from _finite_fill(culprit)
    yield from by_branch(culprit, several=True)
    edges = on_edges(culprit)
    if not edges:
        return
    edge, node = edges[0]
    own = list(_own_conditions(culprit, node))
    if _goes_by_value(culprit):
        if edge.nature is Nature.OVERFLOW:  # a bound beyond which nothing counts changes nothing
            yield from (replace(one, same=True) for one in guarded(culprit))
        yield from _restored(culprit, edge, node, own)
    harmless = edge.cure.harmless or "1.0"
    template = proposals.HARMLESS if hidden else proposals.REPLACED
    title = template.format(op=phrases.spelled(culprit.finding.op), number=harmless)
    # A mask that selects among several numbers says nothing of one, and would make several of it.
    is_one = any(one.role == edge.argument and one.shape == () for one in culprit.finding.tensors)
    masks = () if is_one else _mask_conditions(culprit)
    ways = (_where(culprit, condition, kept, node, harmless) for condition, kept in (*masks, *own))
    for text in dict.fromkeys(ways):
        yield Candidate(title, (culprit.replace(node, text),), same=hidden)
    is_in_loss = any(one.subject is Subject.LOSS for one in culprit.finding.symptoms)
    if hidden or not is_in_loss:  # where it would be there as before
        yield from _restored(culprit, edge, node, own)
    yield from by_branch(culprit, several=False)
    yield from _all_allowed(culprit)


def _value_kept(culprit: Culprit) -> Iterator[Candidate]:
    """Where a value is right and its slope is not: that very value, beside a harmless operand. What
    asks whether a length is 0 takes a small one for another."""
    is_backward = culprit.finding.phase is Phase.BACKWARD
    for edge, node in on_edges(culprit)[:1] if is_backward else ():
        for one in _restored(culprit, edge, node, list(_own_conditions(culprit, node))):
            yield replace(one, kind="masked-branch")


def _goes_by_value(culprit: Culprit) -> bool:
    """Whether a maximum, a sort or a clamp threw the value away, and not a mask."""
    chain = culprit.finding.chain
    thrown = evidence.discard(Root(chain[0], chain=chain)) if chain else None
    return thrown is not None and has(thrown.op, Trait.BY_VALUE)


def _restored(
    culprit: Culprit, edge: Edge, operand: ast.expr, conditions: list[tuple[str, bool]]
) -> Iterator[Candidate]:
    """The harmless operand, and around the op the value that it had: for masks that are made from
    the value itself (`d[d == inf] = 0`), and for a sort or a minimum that goes by it."""
    node = culprit.node
    # There is no result to put back into a mask, or there are several.
    is_matrix = edge.cause == "degenerate-decomposition"
    has_none = culprit.overwritten is not None or is_matrix
    if has_none or not isinstance(node, ast.expr):
        return
    value = _value(culprit) or f"{atom(culprit.source.of(node))}.detach()"
    for condition, kept in conditions[:1]:
        safe = _where(culprit, condition, kept, operand, edge.cure.harmless or "1.0")
        again = culprit.source.written(node, {operand: safe})
        if "\n" in again:
            again = ast.unparse(ast.parse(f"({again})", mode="eval"))
        title = proposals.RESTORED.format(op=phrases.spelled(culprit.finding.op))
        where = f"{culprit.torch('torch.where(')}{condition}, {again}, {value})"
        yield Candidate(title, (culprit.replace(node, where),), same=True)


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
    """inf - inf: where both sides are infinite, the difference is thrown away afterwards; in a
    function of torch's, large finite numbers for the constants that both are made of."""
    sides = [culprit.operands.get(role) for role in ("self", "other")]
    values = [culprit.values.get(role) for role in ("self", "other")]
    infinite = all(value is not None and math.isinf(value) for value in values)
    node = culprit.node
    if infinite and isinstance(node, ast.Call):
        edits = tuple(_finite(culprit, _made_of(culprit.source, node)))
        if len(edits) > 1:  # one constant alone met itself, in a row that it fills
            yield Candidate(proposals.FINITE, edits)
    if not infinite or not isinstance(node, ast.BinOp):
        return
    yield from _maximum_of_nothing(culprit, node)
    if all(side is not None and can_repeat(culprit, side) for side in sides):
        kept = " | ".join(f"{culprit.text(side)}.isfinite()" for side in sides if side is not None)
        where = f"{culprit.torch('torch.where(')}{kept}, {culprit.source.of(node)}, 0.0)"
        yield culprit.written("let the difference of two infinite elements be 0", node, where)


def _maximum_of_nothing(culprit: Culprit, node: ast.BinOp) -> Iterator[Candidate]:
    """`x - m.masked_fill(m == -inf, 0)` for `x - m`, where `m` is the largest of a row and the row
    is -inf throughout: each of its exponentials is 0 then, as there is nothing in it."""
    largest, chain = culprit.operands.get("other"), culprit.finding.chain
    made = evidence.made_by(chain[0], "other") if chain else None
    is_largest = made is not None and made.op in _MAXIMA and culprit.values["other"] == -math.inf
    if is_largest and largest is not None and can_repeat(culprit, largest):
        of = culprit.text(largest)
        text = f'{of}.masked_fill({of} == float("-inf"), 0.0)'
        yield culprit.written("let the largest of nothing be 0", largest, text)


def _made_of(source: Source, node: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression and, through its names and the functions of the file that it
    calls, of what these are given."""
    waiting, seen = [node], set[ast.expr]()
    while waiting:
        for part in parts(waiting.pop(), ast.expr):
            if part in seen:
                continue
            seen.add(part)
            yield part
            if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load):
                given = given_to(source, part)
            else:
                given = returned(source, part) if isinstance(part, ast.Call) else None
            waiting += [given] if given is not None else []


def _all_allowed(culprit: Culprit) -> Iterator[Candidate]:
    """Shares of what a mask has left in a row, of which it has left nothing: it leaves all then, as
    what the shares are given to may ask that they sum up to 1."""
    if not isinstance(culprit.node, ast.expr):
        return
    read = Reading(culprit, culprit.node)
    shares = fit(read, "z / sum(z, dim=d, keepdim=True)", culprit.node) or {}
    product = read.op(shares["z"], "mul") if shares else None
    for one in product.positional if product else ():
        if isinstance(one, Holder) and can_repeat(culprit, one):
            text, dim = culprit.text(one), culprit.source.of(shares["d"])
            where = f"torch.where({text}.any({dim}, keepdim=True), {text}, True)"
            yield culprit.written(
                f"let a row in which `{text}` leaves nothing keep all", one, culprit.torch(where)
            )


def _finite_constant(culprit: Culprit) -> Iterator[Candidate]:
    """A constant of the file that is inf, and meets a 0: a large finite number in its place."""
    names = {node.id for node in culprit.operands.values() if isinstance(node, ast.Name)}
    for made in culprit.source.tree.body:
        if not isinstance(made, ast.Assign) or not isinstance(made.targets[0], ast.Name):
            continue
        name, infinite = made.targets[0].id, infinity(culprit, made.value)
        if name in names and infinite is not None:
            large = "1e30" if infinite > 0 else "-1e30"
            title = f"make `{name}` a large finite number"
            yield culprit.written(title, made.value, large)


def _finite_fill(culprit: Culprit) -> Iterator[Candidate]:
    """An inf that `masked_fill` or `where` writes, and the loss meets."""
    found = spelled(culprit.source, culprit.node)
    if found.name not in ("masked_fill", "where"):
        return
    yield from _left_out(culprit, found)
    for edit in _finite(culprit, (*found.positional[1:], *found.keywords.values())):
        yield Candidate(proposals.FINITE, (edit,))


def _left_out(culprit: Culprit, fill: Spelled) -> Iterator[Candidate]:
    """What a sum or a mean takes in of the elements that a mask had made -inf, as label smoothing
    does: nothing. Not behind what picks some of them, which asks for those. The gradients that the
    infinite loss had are those of another loss, and may move."""
    conditions = [part for part in fill.positional[1:] if infinity(culprit, part) is None]
    for event in culprit.finding.chain[1:]:
        if event.phase is not Phase.FORWARD or discards(event.op):
            return
        if not has(event.op, Trait.SUMS):
            continue
        node = culprit.at(event.call.location)
        total = spelled(culprit.source, node)
        if node is None or total.name != event.op or not total.positional:
            return
        summed = total.positional[0]
        is_here = conditions and holds(culprit.source, conditions[0], node)
        if fill.name == "masked_fill" and is_here:
            text = f"{culprit.text(summed)}.masked_fill({culprit.source.of(conditions[0])}, 0.0)"
        elif can_repeat(culprit, summed):
            text, one = culprit.torch("torch.where("), culprit.source.of(summed)
            text += f"{culprit.text(summed)}.isfinite(), {one}, 0.0)"
        else:
            return
        title = proposals.LEFT_OUT.format(op=total.name)
        yield culprit.written(title, summed, text, "guard-empty")
        return


def started(culprit: Culprit, request: ask.FiniteStart) -> Iterator[tuple[Edit, ...]]:
    """The inf constants of the statements that write them into a parameter."""
    found = dict.fromkeys(statement_at(culprit.source, one) for one in request.written)
    yield tuple(_finite(culprit, (part for one in found for part in parts(one, ast.expr))))


def _finite(culprit: Culprit, values: Iterable[ast.expr]) -> Iterator[Edit]:
    """A number that is large, and within what half precision holds, for each infinite constant."""
    for value in values:
        infinite = infinity(culprit, value)
        is_part = isinstance(culprit.source.parents[value], ast.UnaryOp)  # -math.inf
        if infinite is not None and not is_part:
            yield culprit.replace(value, "1e4" if infinite > 0 else "-1e4")


def _where(culprit: Culprit, condition: str, kept: bool, node: ast.expr, harmless: str) -> str:
    operand = culprit.source.of(node)
    first, second = (operand, harmless) if kept else (harmless, operand)
    with suppress(NoTorch):
        return f"{culprit.torch('torch.where(')}{condition}, {first}, {second})"
    condition = condition if kept else f"~({condition})"
    return f"{culprit.text(node)}.where({condition}, {harmless})"


def _own_conditions(culprit: Culprit, node: ast.expr) -> Iterator[tuple[str, bool]]:
    for edge, operand in on_edges(culprit) if can_repeat(culprit, node) else ():
        if operand is node and (text := filled(culprit, edge, edge.cure.condition, node)):
            if _is_by_row(culprit):
                yield f"{text}.any(-1, keepdim=True)", True
            yield text, True


def _is_by_row(culprit: Culprit) -> bool:
    """Whether one number is subtracted from each row: its largest, its logsumexp. That is -inf
    where the whole row is."""
    shapes = {one.role: one.shape for one in culprit.finding.tensors}
    rows, numbers = shapes.get("self", ()), shapes.get("other", ())
    is_spread = len(rows) == len(numbers) and numbers[-1:] == (1,) != rows[-1:]
    return is_spread and has(culprit.finding.op, Trait.ADDS)


def _mask_conditions(culprit: Culprit) -> Iterator[tuple[str, bool]]:
    """(condition, whether the value is kept where it holds), for masks in the culprit's file."""
    for place in culprit.related("mask"):
        found = mask(culprit.source, place, culprit.node)
        text = _condition(culprit, found) if found is not None else None
        if found is not None and text is not None:
            for kept in (True, False) if found.kept is None else (found.kept,):
                yield text, kept


def _condition(culprit: Culprit, found: Mask) -> str | None:
    """The condition as it can be written at the culprit: itself, or the definition of its name."""
    assert culprit.node is not None
    node = found.condition
    if not holds(culprit.source, node, culprit.node):
        meaning = definition(culprit.source, node)
        if meaning is None or not holds(culprit.source, meaning, culprit.node):
            return None
        node = meaning
    text = culprit.source.of(node)
    if "\n" in text:
        return None
    return f"{culprit.text(node)}.bool()" if found.number else text
