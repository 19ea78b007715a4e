"""Dropout in a function, by the mode of the module that calls it (GS410)."""

import ast

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.parameters import source_of
from gradscope.repair.write.splice import keyword
from gradscope.source import expression
from gradscope.source.arguments import argument


def in_training(culprit: Culprit, request: ask.DropInTraining) -> Ways:
    """`F.dropout(x, training=self.training)`, and `dropout_p=p if self.training else 0.0`, at all
    places."""
    edits = list[Edit]()
    for drop in request.kept.drops:
        source = source_of(culprit, drop.place)
        call = expression(source, drop.place) if source is not None else None
        if source is None or not isinstance(call, ast.Call) or not drop.flag:
            return
        share = argument(call, drop.argument, drop.position)
        if share is None:
            edits.append(keyword(source, call, drop.argument, drop.flag))
        else:
            given = source.of(share) if isinstance(share, ast.Constant) else culprit.text(share)
            edits.append(source.replaced(share, f"{given} if {drop.flag} else 0.0"))
    yield edits
