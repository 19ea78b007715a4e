"""What leaves the graph for NumPy and comes back, computed in torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.repair.write.candidate import Candidate
from gradscope.repair.write.culprit import Culprit
from gradscope.source import definition
from gradscope.source.arguments import called
from gradscope.source.spans import ancestors

_BACK = frozenset(f"torch.{name}" for name in "from_numpy tensor as_tensor asarray Tensor".split())
_OUT = frozenset(("numpy", "detach", "cpu"))  # methods without arguments
_NAMES = {"newaxis": "None", "astype": "to"}


def in_torch(culprit: Culprit) -> Iterator[Candidate]:
    """`torch.tanh(x)` for `torch.from_numpy(np.tanh(x.detach().numpy()))`, also over several lines
    all of which end in torch."""
    source, node = culprit.source, culprit.node
    edits: dict[ast.expr, Edit] = {}
    waiting, leaves = [node] if isinstance(node, ast.expr) else [], False
    while waiting:
        whole = _whole(culprit, waiting.pop())
        if whole in edits:
            continue
        text = _as_torch(culprit, whole)
        if text is None:
            return
        edits[whole] = culprit.replace(whole, text)
        calls = (one for one in ast.walk(whole) if isinstance(one, ast.Call))
        leaves |= any(called(one) == "numpy" for one in calls)
        if not _is_back(culprit, whole):
            made = source.parents[whole]
            target = made.targets[0] if isinstance(made, ast.Assign) else None
            if not isinstance(target, ast.Name):
                return
            reads = source.nodes.scope(target).owner(target.id).reads.get(target.id, ())
            waiting += [one for one in reads if definition(source, one) is whole]
    if leaves and any(_is_back(culprit, one) for one in edits):
        yield Candidate("compute it in torch: NumPy keeps no graph", tuple(edits.values()))


def _whole(culprit: Culprit, node: ast.expr) -> ast.expr:
    """The largest expression around a node, up to where it comes back to torch."""
    whole = node
    for around in ancestors(culprit.source, node):
        if not isinstance(around, ast.expr | ast.keyword) or _is_back(culprit, whole):
            break
        whole = around if isinstance(around, ast.expr) else whole
    return whole


def _is_back(culprit: Culprit, node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and bool(node.args) and culprit.names.dotted(node.func) in _BACK
    )


def _as_torch(culprit: Culprit, whole: ast.expr) -> str | None:
    """The text of an expression with NumPy's functions as torch's of the same name; None where the
    file has no name for torch."""
    source = culprit.source
    begin = source.extent(whole)[0]
    text = source.of(whole)
    for start, end, new in sorted(_changes(culprit, whole), reverse=True):
        text = text[: start - begin] + new + text[end - begin :]
    return culprit.torch(text) if "\n" not in text else None


def _changes(culprit: Culprit, whole: ast.expr) -> Iterator[tuple[int, int, str]]:
    """What becomes of each part: its start and end in the file, and the text for it."""
    source = culprit.source
    for node in ast.walk(whole):
        if not isinstance(node, ast.expr):
            continue
        start, end = source.extent(node)
        if isinstance(node, ast.Call) and _is_back(culprit, node):
            first, last = source.extent(node.args[0])
            yield start, first, ""
            yield last, end, ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if called(node) in _OUT and not node.args:
                yield source.extent(node.func.value)[1], end, ""
        elif isinstance(node, ast.Attribute):
            dotted = culprit.names.dotted(node) or ""
            if isinstance(source.parents[node], ast.Attribute):
                continue
            if dotted.startswith("numpy."):
                yield start, end, _NAMES.get(node.attr, f"torch.{dotted.removeprefix('numpy.')}")
            elif node.attr in _NAMES:
                yield end - len(node.attr), end, _NAMES[node.attr]
