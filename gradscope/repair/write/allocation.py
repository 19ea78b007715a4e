"""Memory that is allocated without being filled: allocate zeros instead."""

from __future__ import annotations

import ast

from gradscope.repair.write.candidate import Ways
from gradscope.repair.write.culprit import Culprit

FILLED = {
    "empty": "zeros",
    "empty_like": "zeros_like",
    "new_empty": "new_zeros",
    "Tensor": "zeros",
    "FloatTensor": "zeros",
}


def filled(culprit: Culprit) -> Ways:
    """`torch.empty(n)` -> `torch.zeros(n)`, in the same way for its kin."""
    call = culprit.node
    if not isinstance(call, ast.Call):
        return
    dotted = culprit.names.dotted(call.func) or ""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else dotted.rpartition(".")[2]
    new = FILLED.get(name)
    if new is None:
        return
    text = culprit.torch(f"torch.{new}") if dotted.startswith("torch.") else None
    if text is None and isinstance(call.func, ast.Attribute):
        text = f"{culprit.source.of(call.func.value)}.{new}"
    if text is not None:
        yield [culprit.source.edit(*culprit.source.extent(call.func), text)]
