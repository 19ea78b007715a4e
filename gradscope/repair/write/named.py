"""The names of tensors that `functional_call` is given (GS418)."""

import ast

from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.splice import keyword
from gradscope.source.arguments import called


def prefixed(culprit: Culprit, request: ask.PrefixNames) -> Ways:
    """`named_parameters(prefix="head")` for `named_parameters()`, and `{"head.weight": w}` for
    `{"weight": w}`."""
    source = culprit.source
    match culprit.node:
        case ast.Dict(keys=keys):
            yield [
                source.replaced(one, f'"{request.prefix}.{one.value}"')
                for one in keys
                if isinstance(one, ast.Constant) and one.value in request.names
            ]
        case ast.Call() as call if called(call) != "functional_call":
            dot = "." if called(call) == "state_dict" else ""  # which takes it as it is
            yield (keyword(source, call, "prefix", f'"{request.prefix}{dot}"'),)
