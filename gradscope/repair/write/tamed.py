"""No gradient where an op is next to its singular point (huge-gradient)."""

import ast

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.ops.edges import Nature
from gradscope.ops.predicates import points_of
from gradscope.repair.write.culprit import Culprit, Ways, can_repeat, filled, operand_of
from gradscope.repair.write.reading import atom
from gradscope.repair.write.splice import before
from gradscope.source.arguments import ARGUMENTS, spelled
from gradscope.source.scopes import Comprehension
from gradscope.source.spans import ancestors
from gradscope.source.tree import parts

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
