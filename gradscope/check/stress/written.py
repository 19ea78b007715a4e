"""What a search found, written as Python: a batch, and a test that is ready to run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from gradscope.programs import Function, Parts, Reference


def batch_of(found: Any) -> str:
    """The expression of the batch whose items are called `batch`, `batch[0]` or `batch['x']`."""
    return "".join(_pieces(found))


def _pieces(found: Any) -> list[str]:
    """The expression, cut between the items of the batch."""
    keys = [name.removeprefix("batch").strip("[]") for name, _, _ in found.inputs]
    texts = [text for _, text, _ in found.inputs]
    if keys == [""]:
        return texts
    if keys[0].isdigit():
        return ["(", *(f"{text}, " for text in texts), ")"]
    return ["{", *(f"{key}: {text}, " for key, text in zip(keys, texts, strict=True)), "}"]


def test_of(found: Any, target: Function | Parts) -> str:
    """A test that fails as long as the target breaks at these inputs."""
    lines = _lines(found, target) if isinstance(target, Function) else _of_parts(found, target)
    return "\n".join(lines) + "\n"


test_of.__test__ = False  # type: ignore[attr-defined]  # pytest collects by name


def _lines(found: Any, target: Function) -> Iterator[str]:
    expression, where = target.reference.expression, target.reference.where
    name = re.sub(r"\W+", "_", expression).strip("_")
    words = re.sub(r"\W+", "_", found.words).strip("_")
    plain = expression.isidentifier()
    if where is not None and where.endswith(".py"):
        yield "import runpy"
        yield ""
    yield "import torch"
    if where is not None and not where.endswith(".py") and plain:
        yield ""
        yield f"from {where} import {expression}"
    yield ""
    yield ""
    yield f"def test_{name}_at_{words}():"
    if where is not None and where.endswith(".py"):
        path = os.path.relpath(where)
        source = f"runpy.run_path({path!r})"
        chosen = f"{source}[{expression!r}]" if plain else f"eval({expression!r}, {source})"
        yield f"    function = {chosen}"
    else:
        yield f"    function = {expression}"
    for input, text, grad in found.inputs:
        yield f"    {input} = {text}{'.requires_grad_()' if grad else ''}"
    given = ", ".join(f"{input}={input}" for input, _, _ in found.inputs)
    yield f"    loss = function({given}){found.access}"
    if found.kind == "loss":
        yield "    assert torch.isfinite(loss)"
        return
    yield "    loss.backward()"
    for input, _, grad in found.inputs:
        if grad:
            yield f"    assert {input}.grad is None or torch.isfinite({input}.grad).all()"


def _of_parts(found: Any, target: Parts) -> Iterator[str]:
    """How a batch is given to a model and its loss is gradscope's to know: it makes the call."""
    words = re.sub(r"\W+", "_", f"{target.model.expression} at {found.words}").strip("_")
    used = "Config, Input" if target.inputs else "Config"
    yield f"from gradscope.config import {used}"
    yield "from gradscope.pipeline import trace"
    yield "from gradscope.programs import Parts, Reference"
    yield ""
    yield ""
    yield f"def test_{words}():"
    yield f"    model = {_reference(target.model)}"
    yield f"    loss = {_reference(target.loss)}"
    yield "    batch = Reference("
    yield "        None,"
    yield from (f"        {piece!r}" for piece in _pieces(found))
    yield "    )"
    inputs = f", {target.inputs!r}" if target.inputs else ""
    yield f"    target = Parts(model, batch, loss{inputs})"
    yield "    report = trace(target, Config(verify=False), silent=True)"
    yield '    assert report.verdict == "healthy"'


def _reference(reference: Reference | None) -> str:
    if reference is None:
        return "None"
    where = reference.where
    if where is not None and where.endswith(".py"):
        where = os.path.relpath(where)
    return f"Reference({where!r}, {reference.expression!r})"
