"""A function that stays positive in the place of a ReLU, for what is divided by or logarithmed.

A bound beside the ReLU would leave the elements that it set to 0 without a gradient.
"""

from __future__ import annotations

import ast

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.candidate import Ways
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.ends import layer, renamed
from gradscope.source.arguments import spelled


def learnt(culprit: Culprit, request: ask.LearnPositive) -> Ways:
    """`F.softplus(x)` for `F.relu(x)`, `nn.Softplus()` for `nn.ReLU()`, or around a call."""
    call = culprit.at(request.made)
    if call is None:
        return
    edit, found = None, spelled(culprit.source, call)
    module = None if request.signed else layer(culprit, call, "torch.nn.ReLU")
    if module is not None:
        edit = renamed(culprit, module, "Softplus")
    elif request.signed:
        edit = _softplus(culprit, call, call)
    elif found is not None and found.name == "relu" and found.positional:
        edit = _softplus(culprit, call, found.positional[0])
    if edit is not None:
        yield (edit,)


def _softplus(culprit: Culprit, place: ast.expr, operand: ast.expr) -> Edit | None:
    text = culprit.torch(f"torch.nn.functional.softplus({culprit.source.of(operand)})")
    return culprit.replace(place, text) if text is not None else None
