"""What is tried: a function with its inputs, or a model and its loss with the items of a batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from gradscope.check.stress.variants import Values
from gradscope.config import Input
from gradscope.programs import Conditions, Function, Parts
from gradscope.programs.loss import NAMES, load_parts, make_inputs, names_taken

# Names of what a function is compared with, whose gradient nobody asks for. Nothing but its name
# tells it from what is trained, where the configuration does not say `requires_grad`.
_DATA = re.compile(r"(^|_)(targets?|labels?|gt|truth|true|masks?)(_|$)", re.IGNORECASE)
_WRITABLE = (Tensor, int, float, str, bool, type(None))


class Subject(Protocol):
    """`given` are the inputs by name, of which those in `wants_grad` are leaves; `declared` is
    what the user said of them."""

    name: str
    declared: dict[str, Input]
    given: Values
    wants_grad: set[str]

    def call(self, values: Values) -> Any: ...

    def written(self, name: str) -> str:
        """Python that makes an input that is no tensor."""
        ...


def subject_of(target: Function | Parts, conditions: Conditions) -> Subject:
    if isinstance(target, Parts):
        return _Batch(target, conditions)
    return _Inputs(target, conditions)


class _Inputs:
    def __init__(self, target: Function, conditions: Conditions) -> None:
        from gradscope.programs.load import evaluate

        self.function: Any = evaluate(target.reference, NAMES)
        self.name = target.name
        self.declared = {given.name: given for given in target.inputs}
        scope = NAMES | getattr(self.function, "__globals__", {})
        made = make_inputs(target.inputs, scope, names_taken(self.function))
        self.given: Values = {
            name: value.detach() if isinstance(value, Tensor) else value
            for name, value in conditions.moved(made).items()
        }
        leaves = {
            name
            for name, value in made.items()
            if isinstance(value, Tensor) and value.requires_grad
        }
        asked = {
            name
            for name in leaves
            if self.declared[name].requires_grad
            or "requires_grad" in self.declared[name].expression
        }
        self.wants_grad = {one for one in leaves if not _DATA.search(one)} | asked or leaves

    def call(self, values: Values) -> Any:
        return self.function(**values)

    def written(self, name: str) -> str:
        return self.declared[name].expression


class _Batch:
    """The items of a batch are named as Python reaches them: `batch[0]`, `batch['x']`."""

    def __init__(self, target: Parts, conditions: Conditions) -> None:
        batch, self.compute = load_parts(target, conditions)
        self.name = target.name
        self.declared: dict[str, Input] = {}
        self.wants_grad: set[str] = set()
        self.keys: list[Any] | None = None
        if isinstance(batch, Mapping):
            self.keys, items = list(batch), list(batch.values())
            names = [f"batch[{key!r}]" for key in self.keys]
        elif isinstance(batch, tuple | list):
            items = list(batch)
            names = [f"batch[{place}]" for place in range(len(items))]
        else:
            items, names = [batch], ["batch"]
        self.whole = isinstance(batch, Tensor)
        for item in items:
            if not isinstance(item, _WRITABLE):
                raise TypeError(f"an item of the batch is a {type(item).__name__}")
        self.given: Values = {
            name: item.detach() if isinstance(item, Tensor) else item
            for name, item in zip(names, items, strict=True)
        }

    def call(self, values: Values) -> Any:
        items = list(values.values())
        if self.keys is not None:
            return self.compute(dict(zip(self.keys, items, strict=True)))
        return self.compute(items[0] if self.whole else tuple(items))

    def written(self, name: str) -> str:
        return repr(self.given[name])
