"""Weights that a program computes, as a hypernetwork does, in the size that layers keep (GS401)."""

import ast

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit, Ways, can_repeat
from gradscope.repair.write.initial import filling_of
from gradscope.source.arguments import argument, called, canonical, spelled
from gradscope.source.meaning import definition

_DRAWN = "draw what computes the weights by the number of inputs that these sum over"
_NORMAL = ("normal_", "trunc_normal_")
_SHAPED = ("view", "reshape")
_PRODUCTS = ("mm", "linear")  # as all spellings of the former are called


def scaled(culprit: Culprit, request: ask.ScaleByInputs) -> Ways:
    found = [(culprit.at(place), is_left) for place, is_left in request.products]
    products = [_operands(culprit, node, is_left) for node, is_left in found if node is not None]
    known = [one for one in products if one is not None]
    if known and len(known) == len(request.products):
        drawn = _drawn(culprit, request, *known[0])
        if drawn is not None:
            yield Candidate(_DRAWN, (drawn,))
        if all(can_repeat(culprit, first) for first, _, _ in known):
            edits = (_scaled(culprit, first, weight, request.gain) for first, weight, _ in known)
            yield tuple(edits)


_Product = tuple[ast.expr, ast.expr, int]  # the first operand, the weight, its dimension of inputs


def _operands(culprit: Culprit, node: ast.expr, is_left: bool) -> _Product | None:
    found = spelled(culprit.source, node)
    if canonical(found.name) not in _PRODUCTS or len(found.positional) < 2:
        return None
    first, second = found.positional[:2]
    is_linear = found.name == "linear"
    return first, first if is_left else second, -1 if is_left or is_linear else -2


def _scaled(culprit: Culprit, first: ast.expr, weight: ast.expr, gain: int) -> Edit:
    inputs = f"{culprit.text(first)}.shape[-1]"
    return culprit.replace(weight, f"{culprit.text(weight)} * ({gain} / {inputs}) ** 0.5")


def _drawn(
    culprit: Culprit, request: ask.ScaleByInputs, first: ast.expr, weight: ast.expr, dim: int
) -> Edit | None:
    """`nn.init.normal_(self.to_weight.weight, std=0.3 * (2 / self.fan_in) ** 0.5)`, where the
    number of inputs is an attribute that the weight is shaped by."""
    filled, inputs = culprit.at(request.made), _inputs(culprit, weight, dim)
    filling = filling_of(culprit, filled, _NORMAL) if filled is not None else None
    if filling is None or not filling.of_init or inputs is None:
        return None
    std = argument(filled, "std", 2)
    if std is None:
        return None
    text = culprit.source.of(std) if isinstance(std, ast.Constant) else culprit.text(std)
    return culprit.replace(std, f"{text} * ({request.gain} / {inputs}) ** 0.5")


def _inputs(culprit: Culprit, weight: ast.expr, dim: int) -> str | None:
    """How many inputs a weight is given room for, as its class says it: `self.fan_in` of
    `w.view(-1, self.fan_in, self.fan_out)`."""
    made = definition(culprit.source, weight) or weight
    if not isinstance(made, ast.Call) or called(made) not in _SHAPED or not made.args:
        return None
    listed = definition(culprit.source, made.args[0]) or made.args[0]
    sizes = listed.elts if isinstance(listed, ast.Tuple | ast.List) else made.args
    size = sizes[dim] if len(sizes) >= -dim else None
    is_own = isinstance(size, ast.Attribute) and isinstance(size.value, ast.Name)
    return culprit.source.of(size) if size is not None and is_own else None
