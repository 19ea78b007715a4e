"""The random numbers of a part that backward runs again: those of the forward pass."""

import ast
from itertools import chain

from gradscope.facts import Edit, Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.splice import before, keyword
from gradscope.source.arguments import called
from gradscope.source.spans import ancestors


def kept(culprit: Culprit, request: ask.KeepRandomState) -> Ways:
    """`checkpoint(..., preserve_rng_state=True)`."""
    if culprit.call is not None:
        yield (keyword(culprit.source, culprit.call, "preserve_rng_state", "True"),)


def restored(culprit: Culprit, request: ask.RestoreRandomState) -> Ways:
    """The generator's state kept in `ctx`, or in `self`, before the part runs first, and set in the
    `with` of backward in which it runs again; those that come after it draw as they did."""
    edits = [_restored(culprit, *both, request.device) for both in request.places]
    if all(edits):
        yield dict.fromkeys(chain.from_iterable(edits))


def _restored(
    culprit: Culprit, again: Location | None, first: Location | None, device: str
) -> tuple[Edit, ...]:
    source, calls = culprit.source, [culprit.at(one) for one in (first, again)]
    match calls, [source.nodes.function(one) for one in calls if one is not None]:
        case (
            [ast.Call() as forward, ast.Call() as backward],
            [
                ast.FunctionDef(args=ast.arguments(args=[one, *_])) as given,
                ast.FunctionDef(args=ast.arguments(args=[other, *_])) as function,
            ],
        ) if one.arg == other.arg and source.parents[given] is source.parents[function]:
            kept = f"{one.arg}.rng_{(called(forward) or 'state').strip('_')}"
        case _:
            return ()
    around = ancestors(source, backward)
    block = next((one for one in around if isinstance(one, ast.With)), None)
    if block is None or source.nodes.function(block) is not function:
        return ()
    of, devices = ("torch", "devices=[]") if device == "cpu" else (f"torch.{device}", "")
    take, give = (culprit.torch(f"{of}.{one}_rng_state") for one in ("get", "set"))
    last = block.items[-1].optional_vars or block.items[-1].context_expr
    end = source.extent(last)[1]
    return (
        *before(source, source.nodes.statement(forward), f"{kept} = {take}()"),
        source.edit(end, end, f", {culprit.torch('torch.random.fork_rng')}({devices})"),
        *before(source, block.body[0], f"{give}({kept})"),
    )
