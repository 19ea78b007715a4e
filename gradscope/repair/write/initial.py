"""Weights and activations that keep the size of what passes through them: GS401 and GS402; weights
that start at 0, and learn nothing, and activations that have a second derivative: GS403."""

import ast
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.ops.display import node_stem
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.splice import after
from gradscope.source.arguments import argument, called, spelled
from gradscope.source.hand_updates import Holder
from gradscope.source.spans import targets_of
from gradscope.source.tree import last_name

# The fillers that say nothing of how many inputs a weight has.
_FILLERS = frozenset("normal_ uniform_ trunc_normal_".split())
_WITH_CONSTANTS = frozenset("constant_ fill_ ones_ zero_ zeros_".split())
_DRAWN = frozenset({"torch.randn", "torch.rand"})
_CONSTANT = frozenset({"torch.full", "torch.ones", "torch.zeros"})
PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})

SMALL = ("normal_({0}, std=0.01)", "start from small numbers drawn at random")
_ORTHOGONAL = ("orthogonal_({0})", "start from orthogonal weights, which keep every norm")
RELU = (
    'kaiming_normal_({0}, nonlinearity="relu")',
    "start from weights of the size that ReLU layers keep (He)",
)
_TANH = (
    "xavier_normal_({0}, gain={1})",
    "start from weights of the size that tanh layers keep (Glorot)",
)
_TANH_GAIN = "5 / 3"  # torch.nn.init.calculate_gain("tanh")

# Saturating activations, and what passes more of the gradient on. Both are at most 1 in slope.
_STEEPER = {"sigmoid": ("relu", "tanh"), "tanh": ("relu",)}
_MODULES = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "ReLU"}


def keeping(culprit: Culprit, request: ask.KeepNorm) -> Iterator[Candidate]:
    """Every weight that the file fills by hand in a size that does not keep the norm, in one that
    does; without such a weight, another activation."""
    ways = [_ORTHOGONAL, RELU, _TANH]
    if request.axis == "depth":
        is_tanh = any(node_stem(node) == "Tanh" for node in request.nodes)
        ways = [_TANH, RELU, _ORTHOGONAL] if is_tanh else [RELU, _ORTHOGONAL]
    weights = list(_filled_by_hand(culprit, {name: ends for name, *ends in request.dimensions}))
    if request.axis != "depth":
        weights += _stretched(culprit)
    for template, title in ways:
        edits = tuple(filter(None, (_filled(culprit, *one, template) for one in weights)))
        if edits:
            yield Candidate(title, edits)
    if not weights:
        yield from _steeper(culprit)


def away_from_zero(culprit: Culprit) -> Iterator[Candidate]:
    """The weights that the file fills with 0, in the size that keeps the norm: of two the first
    alone, so that their product stays 0 at the start, as of an adapter; else all of them."""
    template, title = RELU
    zeros = [
        (node, weight) for node, weight, value in _filled_with_constants(culprit) if value == 0
    ]
    found = [
        _filled(culprit, node, weight, not weight.endswith(".weight"), template)
        for node, weight in zeros
    ]
    edits = tuple(filter(None, found))
    if edits and len(edits) == len(found):
        if len(edits) == 2:
            yield Candidate(title, edits[:1])
        yield Candidate(title, edits)


def at_random(culprit: Culprit, request: ask.DrawWeights) -> Iterator[Candidate]:
    """The weights of that name which the file fills with a constant other than 0, in the size that
    keeps the norm; those of 0 where there are none."""
    name = request.name.rpartition(".")[2]
    filled: list[tuple[ast.expr, str, bool, object]] = [
        (node, weight, not weight.endswith(".weight"), value)
        for node, weight, value in _filled_with_constants(culprit)
        if weight.rpartition(".")[2] == name or weight.isidentifier()
    ]
    for node in culprit.calls(PARAMETERS):
        targets = [last_name(one) for one in targets_of(culprit.source, node)]
        if node.args and targets in ([name], []):
            if (weight := _drawn(culprit, node.args[0], _CONSTANT)) is not None:
                filled.append((node.args[0], weight, False, None))
    template, title = SMALL if request.are_small else RELU
    for are_wanted in (True, False):
        chosen = [one[:3] for one in filled if (one[3] != 0) is are_wanted]
        edits = tuple(filter(None, (_filled(culprit, *one, template) for one in chosen)))
        if edits:
            yield Candidate(title, edits)
            return


def filled_too(culprit: Culprit, request: ask.FillParameter) -> Iterator[Sequence[Edit]]:
    """`nn.init.zeros_(self.gate.bias)` below `nn.init.normal_(self.gate.weight)`."""
    path, _, own = request.name.rpartition(".")
    layer, source = path.rpartition(".")[2], culprit.source
    for call in source.nodes.every(ast.Call):
        held = call.args[0] if call.args else None
        if not culprit.dotted(call).startswith("torch.nn.init."):
            continue
        if isinstance(held, ast.Attribute) and last_name(held.value) == layer:
            line = by_init(culprit, f"{request.filler}({{0}})", f"{source.of(held.value)}.{own}")
            yield after(source, source.nodes.statement(call), line) if line else ()


def drawn(culprit: Culprit) -> Iterator[Candidate]:
    """`nn.Parameter(nn.init.xavier_uniform_(torch.empty(n, m)))`, of a matrix that nobody fills."""
    call = culprit.call
    made = culprit.source.parents.get(call) if call is not None else None
    if call is None or not isinstance(made, ast.Call):
        return
    if culprit.dotted(made) in PARAMETERS and _is_matrix(call.args):
        edit = _filled(culprit, call, culprit.source.of(call), False, "xavier_uniform_({0})")
        edits = () if edit is None else (edit,)
        yield Candidate("start from weights drawn at random (Glorot)", edits)


def _is_matrix(sizes: Sequence[ast.expr]) -> bool:
    """Whether these say so; a vector has no fan."""
    listed = sizes[0] if sizes else None
    return len(listed.elts if isinstance(listed, ast.Tuple | ast.List) else sizes) > 1


def _filled_with_constants(culprit: Culprit) -> Iterator[tuple[ast.Call, str, object]]:
    """`nn.init.zeros_(w)`, `nn.init.constant_(w, 0)`, `w.data.zero_()`, `w.data.fill_(0)`, with the
    text of what may be a matrix, and the number; None where the source does not tell that."""
    for node in culprit.source.nodes.every(ast.Call):
        filling = filling_of(culprit, node)
        if filling is not None and not filling.text.endswith((".bias", ".grad")):
            value = spelled(culprit.source, node).positional[1:2]
            number = 1 if called(node) == "ones_" else 0
            yield node, filling.text, getattr(value[0], "value", None) if value else number


class Filling(NamedTuple):
    """What a call fills, with its text; `of_init`: by a function of `nn.init`."""

    filled: ast.expr
    text: str
    of_init: bool


def filling_of(
    culprit: Culprit, node: ast.AST, fillers: Container[str] = _WITH_CONSTANTS
) -> Filling | None:
    """What a function of `nn.init`, or a method, of one of these names fills: with one number,
    unless said otherwise."""
    dotted = culprit.dotted(node)
    of_init = dotted.startswith("torch.nn.init.")
    if not isinstance(node, ast.Call) or called(node) not in fillers or (dotted and not of_init):
        return None
    filled = node.args[0] if of_init and node.args else None
    if not of_init and isinstance(node.func, ast.Attribute):
        filled = node.func.value
    if filled is None:
        return None
    return Filling(filled, culprit.source.of(filled).removesuffix(".data"), of_init)


def _filled_by_hand(
    culprit: Culprit, dimensions: Mapping[str, Sequence[int]]
) -> Iterator[tuple[ast.expr, str, bool]]:
    """The expressions that fill a weight, with the text of what they fill, and whether that may be
    a vector as well, as in a loop over all parameters: what is a matrix is told by the parameters
    that were seen under the attribute's name. A method fills any tensor: one of a name that was
    not seen is no parameter."""
    for node in culprit.source.nodes.every(ast.Call):
        if (filling := filling_of(culprit, node, _FILLERS)) is not None:
            # What a function of `nn.init` fills is a parameter; by a name of the loop's, any.
            is_name = isinstance(filling.filled, ast.Name)
            unseen = (1 if is_name else 2, 2) if filling.of_init else (0, 0)
            least, most = dimensions.get(filling.text.rpartition(".")[2], unseen)
            if most > 1:
                yield node, filling.text, least < 2
        elif culprit.dotted(node) in PARAMETERS and node.args:
            drawn = _drawn(culprit, node.args[0], _DRAWN)
            if drawn is not None:
                yield node.args[0], drawn, False


def _stretched(culprit: Culprit) -> Iterator[tuple[ast.expr, str, bool]]:
    """The matrices that are made orthogonal, and then multiplied with a gain."""
    for node in culprit.calls({"torch.nn.init.orthogonal_"}):
        if node.args and argument(node, "gain", 1) is not None:
            yield node, culprit.source.of(node.args[0]), False


def _drawn(culprit: Culprit, value: ast.expr, makers: Container[str]) -> str | None:
    """`torch.empty(n, m)` for `torch.randn(n, m)`, also times or over something."""
    while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div):
        value = value.right if isinstance(value.left, ast.Constant) else value.left
    if not isinstance(value, ast.Call) or (name := culprit.dotted(value)) not in makers:
        return None
    given = value.args[:1] if name == "torch.full" else value.args
    if not _is_matrix(given) or value.keywords:
        return None
    return f"{culprit.torch('torch.empty(')}{', '.join(map(culprit.source.of, given))})"


def _filled(
    culprit: Culprit, node: ast.expr, weight: str, may_be_vector: bool, template: str
) -> Edit | None:
    text = by_init(culprit, template, weight)
    if text is None:
        return None
    if may_be_vector:  # which has no fan, and keeps what it was filled with
        text = f"{text} if {weight}.dim() > 1 else {culprit.source.of(node)}"
    return culprit.replace(node, text)


def by_init(culprit: Culprit, template: str, weight: str) -> str | None:
    """The call of a function of `nn.init`, as the file can spell it; None where it cannot."""
    init = culprit.names.spell("torch.nn.init.x")
    return init and init.removesuffix("x") + template.format(weight, _TANH_GAIN)


def _steeper(culprit: Culprit) -> Iterator[Candidate]:
    """Another activation at the culprit, or wherever the file makes a module of it."""
    old = culprit.finding.op
    for new in _STEEPER.get(old, ()):
        edits = tuple(_renamed(culprit, old, new))
        yield Candidate(f"use {new} for {old}: its slope reaches 1", edits)


def _renamed(culprit: Culprit, old: str, new: str) -> Iterator[Edit]:
    node = culprit.node
    if isinstance(node, ast.Call) and isinstance(node.func, Holder) and called(node) == old:
        yield culprit.source.renamed(node.func, new)
        return
    for one in ast.walk(culprit.source.tree):
        if isinstance(one, Holder) and isinstance(one.ctx, ast.Load):
            if culprit.dotted(one) == f"torch.nn.{_MODULES[old]}":
                yield culprit.source.renamed(one, _MODULES[new])


_LAYERS = frozenset(f"torch.nn.{name}" for name in ("ReLU", "LeakyReLU", "ReLU6", "Hardtanh"))
_FUNCTIONS = frozenset(("relu", "leaky_relu", "relu6", "hardtanh"))


def smoothed(culprit: Culprit) -> Iterator[Candidate]:
    """`nn.Tanh()` for every `nn.ReLU()` of the file, and `torch.tanh(x)` for `F.relu(x)`: one that
    is left makes the second derivative 0 again."""
    edits = (*_layers(culprit), *_calls(culprit))
    yield Candidate("use an activation that has a second derivative: `tanh`", edits)


def _layers(culprit: Culprit) -> Iterator[Edit]:
    source = culprit.source
    for node in (*source.nodes.every(ast.Attribute), *source.nodes.every(ast.Name)):
        if culprit.dotted(node) not in _LAYERS:
            continue
        text, above = culprit.torch("torch.nn.Tanh"), source.parents[node]
        if isinstance(node, ast.Attribute):  # as the file names the module
            text = f"{source.of(node.value)}.Tanh"
        if isinstance(above, ast.Call) and above.func is node:
            yield culprit.replace(above, f"{text}()")
        else:
            yield culprit.replace(node, text)


def _calls(culprit: Culprit) -> Iterator[Edit]:
    for call in culprit.source.nodes.every(ast.Call):
        found = spelled(culprit.source, call)
        if found.name in _FUNCTIONS and found.first is not None:
            text = culprit.torch(f"torch.tanh({culprit.source.of(found.first)})")
            yield culprit.replace(call, text)
