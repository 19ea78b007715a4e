"""Averages of weights, written into the model that is to follow by them (GS407)."""

import ast

from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.source.tree import parts


def written_into(culprit: Culprit, request: ask.WriteAverage) -> Ways:
    """`t.copy_(tau * p + (1 - tau) * t)` for `t = tau * p + (1 - tau) * t`, and
    `t.data.copy_(...)` of one that requires a gradient."""
    source = culprit.source
    match made := culprit.statement:
        case ast.Assign(targets=[ast.Name() | ast.Subscript() | ast.Attribute() as target]):
            text = source.of(target)
        case _:
            return
    if any(source.of(one) == text for one in parts(made.value, ast.expr)):
        value = made.value
        holder = text if request.may_write else f"{text}.data"
        yield [source.replaced(made, f"{holder}.copy_({source.of(value)})")]
