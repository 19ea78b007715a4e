"""What a search found, written as Python: the inputs, and a test that is ready to run."""

from __future__ import annotations

import os
import re

import torch
from torch import Tensor

from gradscope.programs import Function, Parts, Reference

_DEFAULT = (torch.float32, torch.int64, torch.bool)  # of what `torch.tensor` makes of numbers


def literal(value: object) -> str:
    """Python that makes the value, a tensor or a plain one."""
    if not isinstance(value, Tensor):
        return repr(value)
    dtype = "" if value.dtype in _DEFAULT and value.numel() else f", dtype={value.dtype}"
    if not value.numel():
        return f"torch.empty({tuple(value.shape)}{dtype})"
    first = value.reshape(-1)[0]
    if value.numel() > 16 and bool((value == first).all()):
        return f"torch.full({tuple(value.shape)}, {_numbers(first.item())}{dtype})"
    return f"torch.tensor({_numbers(value.tolist())}{dtype})"


def _numbers(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_numbers, value))}]"
    if not isinstance(value, float):
        return repr(value)
    text = f"{value:.9g}"
    if not text.lstrip("-").isdigit():
        return text if text[-1].isdigit() else f'float("{text}")'
    return f"{text}.0"


def test_of(target: Function | Parts, words: str) -> str:
    """A test that fails as long as the target breaks at its inputs, which `words` describe."""
    name = re.sub(r"\W+", "_", f"{target.name.rpartition(':')[2]} at {words}").strip("_")
    if isinstance(target, Function):
        given = {"target": repr(_shown(target.reference))}
    else:
        parts = {"model": target.model, "loss": target.loss, "batch": target.batch}
        given = {key: repr(_shown(part)) for key, part in parts.items() if part is not None}
    if target.inputs:
        given["inputs"] = repr({one.name: one.expression for one in target.inputs})
    arguments = "".join(f"        {key}={text},\n" for key, text in given.items())
    return (
        f"import gradscope\n\n\ndef test_{name}():\n    report = gradscope.trace(\n{arguments}"
        '        verify=False,\n    )\n    assert report.verdict == "healthy", str(report)\n'
    )


test_of.__test__ = False  # type: ignore[attr-defined]  # pytest collects by name


def _shown(reference: Reference) -> str:
    where = reference.where
    if where is None:
        return reference.expression
    where = os.path.relpath(where) if where.endswith(".py") else where
    return f"{where}:{reference.expression}"
