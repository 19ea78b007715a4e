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
    if edits and None not in edits:
        title = "use an activation that has a second derivative: `tanh`"
        yield Candidate(title, tuple(edit for edit in edits if edit is not None))


def _layers(culprit: Culprit) -> Iterator[Edit | None]:
    source = culprit.source
    for node in (*source.nodes.every(ast.Attribute), *source.nodes.every(ast.Name)):
        if culprit.names.dotted(node) not in _LAYERS:
            continue
        text, above = culprit.torch("torch.nn.Tanh"), source.parents[node]
        if isinstance(node, ast.Attribute):  # as the file names the module
            text = f"{source.of(node.value)}.Tanh"
        is_made = isinstance(above, ast.Call) and above.func is node
        whole = above if is_made and isinstance(above, ast.Call) else node
        text = f"{text}()" if is_made and text is not None else text
        yield culprit.replace(whole, text) if text is not None else None


def _calls(culprit: Culprit) -> Iterator[Edit | None]:
    for call in culprit.source.nodes.every(ast.Call):
        found = spelled(culprit.source, call)
        if found is not None and found.name in _FUNCTIONS and found.positional:
            text = culprit.torch(f"torch.tanh({culprit.source.of(found.positional[0])})")
            yield culprit.replace(call, text) if text is not None else None
