"""Layers as they are made: one for each place of a container that holds one several times (GS416),
and BatchNorm with another momentum (GS410)."""

import ast

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.parameters import source_of
from gradscope.repair.write.splice import keyword
from gradscope.source import expression
from gradscope.source.repetitions import is_repeated
from gradscope.source.tree import names_in, parts


def made_for_each(culprit: Culprit, request: ask.MakeEach) -> Ways:
    """`[Head(n) for _ in range(4)]` for `[Head(n)] * 4`, and `copy.deepcopy(head)` of what is made
    elsewhere."""
    source, node = culprit.source, culprit.node
    match node:
        case ast.BinOp(ast.List(elts) | ast.Tuple(elts), ast.Mult(), times):
            yield _multiplied(culprit, node, elts, times)
        case ast.BinOp(times, ast.Mult(), ast.List(elts) | ast.Tuple(elts)):
            yield _multiplied(culprit, node, elts, times)
        case ast.ListComp(one) | ast.GeneratorExp(one) | ast.DictComp(value=one):
            yield _copied(culprit, one)
        case ast.List(elts) | ast.Tuple(elts) | ast.Dict(values=elts):
            seen, edits = set[str](), list[Edit]()
            for one in elts:
                edits += _copied(culprit, one) if source.of(one) in seen else ()
                seen.add(source.of(one))
            yield dict.fromkeys(edits)
        case ast.Call(func=ast.Attribute(attr="append"), args=[one]):
            yield _copied(culprit, one)
        case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[keys, one]):
            text, imports = _each(culprit, one)
            turns = f"for key in {source.of(keys)}"
            yield (*imports, source.replaced(node, f"{{key: {text} {turns}}}"))
        case ast.Call(args=[one, times]) if is_repeated(source, node):
            yield _multiplied(culprit, node, [one], times)


def _multiplied(
    culprit: Culprit, node: ast.expr, elements: list[ast.expr], times: ast.expr
) -> tuple[Edit, ...]:
    source = culprit.source
    name = "_" if "_" not in names_in(node) else "each"
    turns = f"for {name} in range({source.of(times)})"
    made, imports = zip(*(_each(culprit, one) for one in elements), strict=True)
    if len(elements) == 1:
        return (*imports[0], source.replaced(node, f"[{made[0]} {turns}]"))
    if not any(imports) and all(any(parts(one, ast.Call)) for one in elements):
        return (source.replaced(node, f"[one {turns} for one in ({', '.join(made)})]"),)
    copied, needed = _copy_of(culprit, "one")
    listed = ", ".join(map(source.of, elements))
    text = f"[{copied} {turns} for one in ({listed})]"
    return (*needed, source.replaced(node, text))


def _each(culprit: Culprit, one: ast.expr) -> tuple[str, tuple[Edit, ...]]:
    """The text of one that is made in each turn; with what it needs."""
    if any(parts(one, ast.Call)):
        return culprit.source.of(one), ()
    return _copy_of(culprit, culprit.source.of(one))


def _copied(culprit: Culprit, one: ast.expr) -> tuple[Edit, ...]:
    text, imports = _copy_of(culprit, culprit.source.of(one))
    return (*imports, culprit.source.replaced(one, text))


def _copy_of(culprit: Culprit, text: str) -> tuple[str, tuple[Edit, ...]]:
    """`copy.deepcopy(x)` as the file can write it, with an import where it has none."""
    known = culprit.names.spell("copy.deepcopy")
    imports = culprit.imported("copy") if known is None else ()
    return f"{known or 'copy.deepcopy'}({text})", imports


def slower(culprit: Culprit, request: ask.LowerMomentum) -> Ways:
    """`momentum=0.01` for `momentum=0.99`, wherever the number is written; `1 - momentum` of what
    is no number there."""
    edits = list[Edit]()
    for place in request.hasty.places:
        source = source_of(culprit, place)
        node = expression(source, place) if source is not None else None
        text = f"{1 - request.hasty.momentum:.6g}"
        if source is None or not isinstance(node, ast.expr):
            return
        match node:
            case ast.Call():
                edits.append(keyword(source, node, "momentum", text))
            case ast.Constant():
                edits.append(source.replaced(node, text))
            case ast.BinOp(ast.Constant(1), ast.Sub(), other):
                edits.append(source.replaced(node, source.of(other)))
            case _:
                edits.append(source.replaced(node, f"1 - {culprit.text(node)}"))
    yield edits
