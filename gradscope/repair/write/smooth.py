"""An activation that has a second derivative, in the place of one made of straight lines."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.source.arguments import spelled

_LAYERS = frozenset(f"torch.nn.{name}" for name in ("ReLU", "LeakyReLU", "ReLU6", "Hardtanh"))
_FUNCTIONS = frozenset(("relu", "leaky_relu", "relu6", "hardtanh"))


def smoothed(culprit: Culprit) -> Iterator[Candidate]:
    """`nn.Tanh()` for every `nn.ReLU()` of the file, and `torch.tanh(x)` for `F.relu(x)`: one that
    is left makes the second derivative 0 again."""
    edits = (*_layers(culprit), *_calls(culprit))
    if edits:
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
