"""Layers as they are made: one for each place of a container that holds one several times (GS416),
and one that starts at 0 without the norm of its weight."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.statements import enclosing, left_out, node_at, within
from gradscope.source import Source
from gradscope.source.arguments import argument, arguments_of
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


_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)


def without(culprit: Culprit, request: ask.WithoutNorm) -> Ways:
    """`self.end = end` for `self.end = weight_norm(end)`, and no `weight_norm(self.end)`."""
    source, normed = culprit.source, request.normed
    call, norm = culprit.at(normed.location), culprit.at(normed.inner)
    layer = _layer(culprit, call, norm)
    if call is None or layer is None:
        return
    zeroed = node_at(source, normed.beside) if normed.beside.file == source.file else None
    is_made_there = isinstance(layer, ast.Call)
    loops = [one for one in enclosing(source, call) if isinstance(one, _LOOPS)]
    if not is_made_there and not {*loops} <= {*enclosing(source, zeroed)}:
        return  # the other layers of the loop may go on as they are
    statement, text = source.parents[call], source.of(layer)
    tests = [] if is_made_there else [*_conditions(source, zeroed, call)]
    if tests:
        yield from _where_not(culprit, call, text, tests)
        return
    is_alone = isinstance(statement, ast.Expr)
    if isinstance(statement, ast.Assign):
        is_alone = [source.of(one) for one in statement.targets] == [text]
    if is_alone and isinstance(statement, ast.stmt):
        yield (left_out(source, statement),)
    else:
        yield (culprit.replace(call, text),)


def _layer(culprit: Culprit, call: ast.expr | None, norm: ast.expr | None) -> ast.expr | None:
    """What is normalised, as the call gives it, by way of a helper or without one."""
    if not culprit.dotted(norm).endswith(".weight_norm"):
        return None
    layer = argument(norm, "module", 0)
    if call is not norm and norm is not None:
        function = culprit.source.nodes.function(norm)
        if not isinstance(function, ast.FunctionDef) or not isinstance(call, ast.Call):
            return None
        given = arguments_of(function, call)
        layer = given.get(layer.id) if isinstance(layer, ast.Name) else None
    return None if isinstance(layer, ast.Starred) else layer


def _conditions(
    source: Source, zeroed: ast.AST | None, call: ast.expr
) -> Iterator[tuple[ast.expr, bool]]:
    """On what it hangs that the weight is set to 0, where the layer is normalised in any case."""
    beside, below = enclosing(source, call), zeroed
    if zeroed is None or source.nodes.function(zeroed) is not source.nodes.function(call):
        return
    for one in enclosing(source, zeroed):
        if isinstance(one, ast.If) and one not in beside:
            yield one.test, below in one.body
        below = one


def _where_not(
    culprit: Culprit, call: ast.expr, layer: str, tests: list[tuple[ast.expr, bool]]
) -> Ways:
    """`conv if zero else weight_norm(conv)`, and `if not zero:` around no more than the call."""
    source, statement = culprit.source, culprit.source.parents[call]
    named = [f"{'' if wanted else 'not '}{culprit.text(one)}" for one, wanted in reversed(tests)]
    first, is_wanted = tests[0]
    is_plain = len(tests) == 1 and is_wanted and isinstance(first, ast.Compare)
    test, text = source.of(first) if is_plain else " and ".join(named), source.of(call)
    if isinstance(statement, ast.Expr):
        opening = f"if not {culprit.text(first) if len(tests) == 1 and is_wanted else f'({test})'}"
        yield (source.replaced(statement, within(source, opening, statement, text)),)
    else:
        yield (culprit.replace(call, f"{layer} if {test} else {text}"),)


def of_gain(culprit: Culprit, request: ask.ZeroGain) -> Ways:
    """`nn.init.zeros_(conv.weight_g)` for `nn.init.zeros_(conv.weight_v)`."""
    found = node_at(culprit.source, request.place)
    for node in parts(found, ast.Attribute) if found is not None else ():
        of, name = culprit.source.of(node).removesuffix(node.attr), node.attr
        new = "original0" if name == "original1" else f"{name.removesuffix('_v')}_g"
        if name == "original1" or name.endswith("_v"):
            yield (culprit.source.replaced(node, f"{of}{new}"),)
