"""Beside a singular point. A quotient 0 / 0 of functions of one value tends to a number where that
value is 0: sin(a) over a, as in rotations and their interpolation. A small `a` in the
place of 0 gives it. And no gradient where an op is next to such a point (huge-gradient)."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.ops.edges import Nature
from gradscope.ops.predicates import points_of
from gradscope.repair.write.culprit import (
    MOVES,
    Candidate,
    Culprit,
    Ways,
    can_repeat,
    filled,
    operand_of,
)
from gradscope.repair.write.reading import Reading, atom
from gradscope.repair.write.splice import before
from gradscope.repair.write.statements import for_all_readers
from gradscope.rules.wording import proposals
from gradscope.source import binding
from gradscope.source.arguments import ARGUMENTS, Spelled, called, spelled
from gradscope.source.scopes import Comprehension
from gradscope.source.spans import ancestors, parenthesized
from gradscope.source.tree import last_name, names_in, parts

# 0 at 0, and as smooth there as a straight line.
_CURVED = frozenset("asin asinh atan atan2 atanh erf expm1 log1p sin sinh tan tanh".split())
_KEEPS = frozenset("abs neg pow sqrt".split()) | MOVES
_ONE_AT_ZERO = frozenset(("cos", "cosh", "exp"))
_POSITIVE = frozenset(("abs", "acos", "acosh", "hypot", "norm", "sqrt"))
# A quotient of what is 0 to the first order is exact this near in float32. Of 1 - cos(a) rounding
# leaves nothing there, and three digits at the second.
_NEAR = ("1e-4", "1e-2")
# The slope towards p of a power transform is a difference that rounding takes 1e-8 / p ** 2 of, and
# its value is off by p: the two are alike here.
_BALANCED = "3e-4"

Zeros = dict[str, tuple[ast.Name, bool]]  # what makes an expression 0; whether by a curve


def towards(culprit: Culprit, *, known: bool = True) -> Iterator[Candidate]:
    """Keeps the common argument of numerator and denominator away from 0, where it is made. With
    `known` only of functions that are known to be 0 at 0, else of any."""
    found = spelled(culprit.source, culprit.node)
    if found.name != "div" or not isinstance(culprit.node, ast.expr):
        return
    read = Reading(culprit, culprit.node)
    above: Zeros = {}
    for factor in (found.positional[0], *_factors(culprit, culprit.node)):
        above = _zeros(read, factor) | above
    below = _zeros(read, found.positional[-1])
    # A direction w / |w|, and sin(|w|) on another line.
    turned = {key: (at, True) for key, (at, _) in below.items() if _is_turned_by(culprit, at)}
    above = turned | above
    if not known:
        direct = parts(found.positional[0], ast.Name)
        names = names_in(found.positional[0]).union(*map(names_in, map(read.given, direct)))
        above = {key: (at, True) for key, (at, _) in below.items() if key in names}
    name = next((key for key in above if key in below), None)
    if name is None or not (above[name][1] or below[name][1]):
        return
    node, exact = below[name][0], tuple(_exact(read, culprit.node))
    for near in _NEAR:
        if edits := _kept_off(culprit, node, near):
            yield Candidate(proposals.LIMIT.format(name=name), (*edits, *exact), "epsilon")


def of_power(culprit: Culprit) -> Iterator[Candidate]:
    """`(x ** p - 1) / p`, the power transform of Box and Cox, which tends to log(x) at p = 0: by
    `expm1`, and with a small p in the place of 0. A sum keeps the gradient of p."""
    source, node = culprit.source, culprit.node
    found = spelled(source, node)
    if found.name != "div" or not isinstance(node, ast.expr) or culprit.statement is None:
        return
    top, bottom = spelled(source, found.positional[0]), found.positional[-1]
    power = spelled(source, top.positional[0]) if top.name == "sub" else None
    if power is None or power.name != "pow" or len(power.positional) != 2:
        return
    base, exponent = power.positional
    is_one = Reading(culprit, node).number(top.positional[-1]) == 1
    if not (is_one and source.of(exponent) == source.of(bottom)):
        return
    text = source.of(exponent)
    name = last_name(exponent)
    taken = names_in(source.nodes.function(node)) - ({name} if text == name else set())
    if name and name not in taken:
        made = f"{name} = {text} + {_BALANCED} * ({text} == 0)"
        lines = before(source, culprit.statement, made)
        log = culprit.torch(f"torch.expm1({name} * torch.log({source.of(base)}))")
        edits = (*lines, culprit.replace(node, f"{log} / {name}"))
        yield Candidate(proposals.LIMIT.format(name=text), edits, "epsilon")


def _is_turned_by(culprit: Culprit, name: ast.Name) -> bool:
    """Whether another line takes the sine of a name, or its like."""
    source = culprit.source
    uses = (spelled(source, source.parents[one]) for one in source.nodes.reads(name))
    return any(use.name in _CURVED for use in uses)


def _factors(culprit: Culprit, quotient: ast.expr) -> Iterator[ast.expr]:
    """What the quotient is multiplied with in its line: v / a * sin(a)."""
    node = quotient
    while (found := spelled(culprit.source, culprit.source.parents[node])).name == "mul":
        yield from (one for one in found.positional if one is not node)
        above = culprit.source.parents[node]
        assert isinstance(above, ast.expr)
        node = above


def _zeros(read: Reading, node: ast.expr) -> Zeros:
    """The names that make an expression 0 where they are, the nearest first."""
    if isinstance(node, ast.Name):
        given = read.given(node)
        return {node.id: (node, False)} | (_zeros(read, given) if given is not None else {})
    if isinstance(node, ast.Subscript | ast.Attribute):  # `.min(0)[0]`, `.min(0).values`
        return _zeros(read, node.value) if read.op(node.value, "min") else {}
    found = spelled(read.culprit.source, node)
    if not found.positional:
        return {}
    first, last = found.positional[0], found.positional[-1]
    if capped := _capped(read, node):
        zeros = (_zeros(read, one) for one in capped)
        return {key: (at, True) for one in zeros for key, (at, _) in one.items()}
    if found.name in _CURVED or (found.name == "sub" and _is_one_less(read, found)):
        return {key: (at, True) for key, (at, _) in _zeros(read, _argument(read, found)).items()}
    if found.name in _KEEPS or found.name == "div":
        return _zeros(read, first)
    if found.name == "mul":
        return _zeros(read, first) | _zeros(read, last)
    if found.name in ("add", "sub"):
        second = _zeros(read, last)
        return {key: at for key, at in _zeros(read, first).items() if key in second}
    return {}


def _capped(read: Reading, node: ast.expr) -> tuple[ast.expr, ...]:
    """What an expression is the smaller one of, or what has a largest value: near 0 it is that
    itself. `x.clamp(max=5)`, `torch.minimum(x, y)`, `torch.stack([x, y]).min(0).values`."""
    found = spelled(read.culprit.source, node)
    if not isinstance(node, ast.Call) or not found.positional:
        return ()
    given = found.positional
    if found.name == "clamp":
        is_largest = len(given) == 1 and [*found.keywords] == ["max"]
        return given[:1] if is_largest or called(node) == "clamp_max" else ()
    if found.name == "minimum":
        return given
    stacked = read.op(given[0], "stack") if found.name in ("min", "amin") else None
    return tuple(getattr(stacked.positional[0], "elts", ())) if stacked is not None else ()


def _argument(read: Reading, found: Spelled) -> ast.expr:
    """Of the function that is 0 at 0: x of sin(x), of 1 - cos(x) and of exp(x) - 1."""
    inner = (read.argument(one, *_ONE_AT_ZERO) for one in found.positional)
    return next((one for one in inner if one is not None), found.positional[0])


def _is_one_less(read: Reading, found: Spelled) -> bool:
    """1 - cos(x), or the other way round."""
    sides = [read.number(one) == 1 for one in found.positional]
    curves = [read.op(one, *_ONE_AT_ZERO) is not None for one in found.positional]
    return sides == curves[::-1] and any(sides)


def _exact(read: Reading, quotient: ast.expr) -> Iterator[Edit]:
    """`torch.expm1(x)` for `torch.exp(x) - 1`, of which rounding leaves little near 0."""
    culprit = read.culprit
    for node in parts(quotient, ast.BinOp):
        found = spelled(culprit.source, node)
        if found.name == "sub" and _is_one_less(read, found):
            first, second = (read.argument(one, "exp") for one in found.positional)
            if argument := first or second:
                text = culprit.torch(f"torch.expm1({read.text(argument)})")
                place = parenthesized(culprit.source, node) if first else None
                start, end = place or culprit.source.extent(node)
                yield culprit.source.edit(start, end, text if first else f"-{text}")


def _kept_off(culprit: Culprit, name: ast.Name, near: str) -> tuple[Edit, ...]:
    given = binding(culprit.source, name)
    if given is None:
        return ()
    if given.value is not None and spelled(culprit.source, given.value).name in _POSITIVE:
        text = f"{culprit.text(given.value)}.clamp_min({near})"
        return (culprit.replace(given.value, text),)
    return for_all_readers(culprit, name, f"{{x}}.masked_fill({{x}} == 0, {near})")


# Calls that divide by the lengths of vectors: the vectors, and whether their results keep the
# dimension along which these are measured.
_VECTORS = {"normalize": (("self",), True), "cosine_similarity": (("x1", "x2"), False)}
_USUAL = 1e-6  # a length below which a vector has no direction
_DIMENSION = "1"  # of both calls, where they are not given one
_INNER = ast.Lambda | Comprehension  # which run their parts elsewhere, or many times
_SINGULAR = (Nature.POLE, Nature.INFINITE_SLOPE)


def tamed(culprit: Culprit, request: ask.TameSlope) -> Ways:
    """The operand kept at a distance by a clamp, which hands on no gradient there; where the steep
    slope is that of another one, 1 in its place. Else the value as it is, cut off from its
    gradient."""
    yield from _of_vectors(culprit, request)
    edges = [one for one in culprit.edges() if one.argument == request.argument]
    edge = min(edges, key=lambda one: one.nature not in _SINGULAR, default=None)
    node = operand_of(culprit, edge) if edge is not None else None
    if edge is None or node is None or request.near is None:
        return
    # At a distance from all singular points.
    points = points_of(edge.holds, edge.argument)
    is_unit = bool(points) and set(points) <= {1, -1}
    outside = "{x}.abs() < 1 - {eps}" if is_unit else "{x}.abs() > {eps}"
    if request.own:
        # Next to a pole the value is as huge as the slope.
        is_pole = edge.nature is Nature.POLE and request.far is not None
        distance = request.far if is_pole else request.near
        text = filled(culprit, edge, edge.cure.guard, node, distance or request.near)
    else:
        instead = f"torch.where({outside}, {{x}}, 1.0)"
        text = filled(culprit, edge, instead, node, request.near)
    if text:
        yield [culprit.replace(node, text)]
    whole, condition = culprit.node, filled(culprit, edge, outside, node, request.near)
    if isinstance(whole, ast.expr) and condition and can_repeat(culprit, whole):
        text = culprit.source.of(whole)
        where = culprit.torch("torch.where(")
        yield [culprit.replace(whole, f"{where}{condition}, {text}, ({text}).detach())")]


def _of_vectors(culprit: Culprit, request: ask.TameSlope) -> Ways:
    whole = culprit.node
    found = spelled(culprit.source, whole)
    if found.name not in _VECTORS or not isinstance(whole, ast.expr):
        return
    roles, keeps = _VECTORS[found.name]
    given = dict(zip(ARGUMENTS[found.name], found.positional, strict=False))
    given |= {"self" if name == "input" else name: one for name, one in found.keywords.items()}
    if any(role not in given for role in roles):
        return
    named = _named(culprit, [given[role] for role in roles])
    if named is None:
        return
    texts, line = named
    dim = culprit.source.of(given["dim"]) if "dim" in given else _DIMENSION
    keep = ", keepdim=True" if keeps else ""
    longer = f"{max(request.near or 0.0, _USUAL):g}"
    lengths = (f"({atom(text)}.norm(dim={dim}{keep}) > {longer})" for text in texts.values())
    written = culprit.source.written(whole, texts)
    edits = (*line, culprit.replace(whole, " * ".join((written, *lengths))))
    yield edits


def _named(
    culprit: Culprit, nodes: list[ast.expr]
) -> tuple[dict[ast.expr, str], tuple[Edit, ...]] | None:
    """Each expression as a text that may be written twice: what has to be computed gets a name, on
    a line before. None where there is no place for that."""
    source = culprit.source
    names = source.free(("vectors", "others", "_vectors", "_others"))
    texts = {node: source.of(node) for node in nodes}
    lines = []
    for node in nodes:
        if any(parts(node, ast.Call)):
            texts[node], text = next(names, ""), texts[node]
            lines.append(f"{texts[node]} = {text}")
    if not lines:
        return texts, ()
    assert culprit.node is not None
    is_inner = any(isinstance(one, _INNER) for one in ancestors(source, culprit.node))
    line = before(source, source.nodes.statement(culprit.node), *lines)
    return None if not line or is_inner or "" in texts.values() else (texts, line)
