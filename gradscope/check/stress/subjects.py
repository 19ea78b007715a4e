"""What is tried: a function with its inputs, or a model and its loss with the items of a batch."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

import torch
from torch import Tensor

from gradscope.config import Input
from gradscope.dataclass import dataclass
from gradscope.programs import Conditions, Function, Parts, Reference
from gradscope.programs.load import evaluate
from gradscope.programs.loss import NAMES, load_parts, make_inputs, names_taken

Values = dict[str, Any]
_DEFAULT = (torch.float32, torch.int64, torch.bool)  # of what `torch.tensor` makes of numbers
_WRITABLE = (Tensor, int, float, str, bool, type(None))


@dataclass(frozen=True, slots=True)
class Subject:
    """`given` are the inputs by name, of which those in `wants_grad` are leaves; `declared` is
    what the user said of them. `target` has other values in the place of its own."""

    name: str
    given: Values
    call: Callable[[Values], Any]
    target: Callable[[Values], Function | Parts]
    wants_grad: frozenset[str] = frozenset()
    declared: Mapping[str, Input] = field(default_factory=dict)


def subject_of(target: Function | Parts, conditions: Conditions) -> Subject:
    if isinstance(target, Function):
        return _with_inputs(target, conditions)
    return _with_batch(target, conditions)


def _with_inputs(target: Function, conditions: Conditions) -> Subject:
    function: Any = evaluate(target.reference, NAMES)
    declared = {given.name: given for given in target.inputs}
    scope = NAMES | getattr(function, "__globals__", {})
    made = make_inputs(target.inputs, scope, names_taken(function))
    wants_grad = {name for name, value in made.items() if getattr(value, "requires_grad", False)}

    def written(name: str, value: object) -> Input:
        if not isinstance(value, Tensor):
            return declared[name]
        able = value.is_floating_point() or value.is_complex()
        left_out = able and name not in wants_grad
        return Input(name, f"{literal(value)}{'.requires_grad_(False)' if left_out else ''}")

    return Subject(
        target.name,
        {name: _detached(value) for name, value in conditions.moved(made).items()},
        call=lambda values: function(**values),
        target=lambda values: replace(
            target, inputs=tuple(written(name, value) for name, value in values.items())
        ),
        wants_grad=frozenset(wants_grad),
        declared=declared,
    )


def _with_batch(target: Parts, conditions: Conditions) -> Subject:
    """The items of a batch are named as Python reaches them: `batch[0]`, `batch['x']`."""
    batch, compute = load_parts(target, conditions)
    if isinstance(batch, Mapping):
        named = {f"batch[{key!r}]": item for key, item in batch.items()}
    elif isinstance(batch, tuple | list):
        named = {f"batch[{place}]": item for place, item in enumerate(batch)}
    else:
        named = {"batch": batch}
    for item in named.values():
        if not isinstance(item, _WRITABLE):
            raise TypeError(f"an item of the batch is a {type(item).__name__}")

    def rebuilt(values: Values) -> Any:
        if isinstance(batch, Mapping):
            return dict(zip(batch, values.values(), strict=True))
        return tuple(values.values()) if isinstance(batch, tuple | list) else values["batch"]

    def written(values: Values) -> Parts:
        texts = [literal(value) for value in values.values()]
        if isinstance(batch, Mapping):
            pairs = zip(batch, texts, strict=True)
            text = f"{{{', '.join(f'{key!r}: {one}' for key, one in pairs)}}}"
        else:
            text = f"({', '.join(texts)},)" if isinstance(batch, tuple | list) else texts[0]
        return replace(target, batch=Reference(None, text))

    given = {name: _detached(item) for name, item in named.items()}
    return Subject(target.name, given, lambda values: compute(rebuilt(values)), written)


def _detached(value: object) -> object:
    return value.detach() if isinstance(value, Tensor) else value


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
