"""What each key of the configuration may hold, and the words for what it may not."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gradscope.facts import Severity


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a function target: a Python expression with torch in scope.

    `requires_grad` None means: a floating tensor does, unless the expression says otherwise.
    An `optional` one comes from the configuration and is used where a function takes that name.
    """

    name: str
    expression: str
    requires_grad: bool | None = None
    optional: bool = False


class WrongValue(Exception):
    """A value of the wrong sort; `path` leads from the key to it."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = path


def unknown(what: str, key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    help = f"did you mean {near[0]}?" if near else "known are " + ", ".join(known)
    return f"unknown {what} {key}\n{help}"


def _says(value: object) -> str:
    return f"{type(value).__name__} {value!r}"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValue(f"must be text, got {_says(value)}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    """A list, or a single value for a list of one; numbers are written out, as in a shell."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(v, str | int | float) for v in values):
        raise WrongValue(f"must be a list of words, got {_says(value)}")
    return tuple(map(str, values))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongValue(f"must be true or false, got {_says(value)}")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WrongValue(f"must be a whole number from 1, got {_says(value)}")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise WrongValue(f"must be a number of seconds, got {_says(value)}")
    return float(value)


def _severity(value: object) -> Severity:
    try:
        return Severity(value)  # type: ignore[arg-type]
    except ValueError:
        words = ", ".join(Severity)
        raise WrongValue(f"must be one of {words}, got {_says(value)}") from None


def _inputs(value: object) -> tuple[Input, ...]:
    if not isinstance(value, dict):
        raise WrongValue(f"must be names with values, got {_says(value)}")
    found = []
    for name, spec in value.items():
        if not str(name).isidentifier():
            raise WrongValue(f"has {name!r}, which is no Python name", str(name))
        try:
            found.append(_input(str(name), spec))
        except WrongValue as error:
            raise WrongValue(f"{name}: {error}", str(name), *error.path) from None
    return tuple(found)


def _input(name: str, spec: object) -> Input:
    """An expression, a value, or a mapping that describes a tensor."""
    match spec:
        case str():
            return Input(name, spec, optional=True)
        case list():
            return Input(name, f"torch.tensor({spec!r})", optional=True)
        case dict():
            return _tensor(name, spec)
    return Input(name, repr(spec), optional=True)


TENSOR_KEYS: dict[str, str] = {
    "values": "numbers, nested as the tensor is",
    "shape": "whole numbers",
    "range": "two numbers: values are uniform between them (whole numbers: both included)",
    "dtype": "a torch dtype: float32, int64, ...",
    "seed": "a whole number",
    "requires_grad": "true or false",
}


def _tensor(name: str, spec: Mapping[str, Any]) -> Input:
    for key in spec:
        if key not in TENSOR_KEYS:
            raise WrongValue(unknown("key", str(key), TENSOR_KEYS), str(key))
    dtype = _text(spec.get("dtype", "float32")).removeprefix("torch.")
    wants_grad = _flag(spec["requires_grad"]) if "requires_grad" in spec else None
    if "values" in spec:
        chosen = f", dtype=torch.{dtype}" if "dtype" in spec else ""
        expression = f"torch.tensor({spec['values']!r}{chosen})"
        return Input(name, expression, wants_grad, optional=True)
    shape = spec.get("shape", [])
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
        raise WrongValue(f"must be a list of whole numbers, got {_says(shape)}", "shape")
    return Input(name, _random(tuple(shape), dtype, spec), wants_grad, optional=True)


def _random(shape: tuple[int, ...], dtype: str, spec: Mapping[str, Any]) -> str:
    limits = spec.get("range")
    numbers = isinstance(limits, list) and all(isinstance(n, int | float) for n in limits)
    if limits is not None and not (numbers and len(limits) == 2):
        raise WrongValue(f"must be two numbers, got {_says(limits)}", "range")
    if not isinstance(spec.get("seed", 0), int):
        raise WrongValue(f"must be a whole number, got {_says(spec['seed'])}", "seed")
    seeded = f", generator=torch.Generator().manual_seed({spec['seed']})" if "seed" in spec else ""
    if dtype.startswith(("int", "uint", "bool", "long")):
        low, high = limits or (0, 1)
        return f"torch.randint({low}, {high} + 1, {shape}{seeded}).to(torch.{dtype})"
    if limits is None:
        return f"torch.randn({shape}{seeded}).to(torch.{dtype})"
    low, high = limits
    return f"(torch.rand({shape}{seeded}) * ({high} - {low}) + {low}).to(torch.{dtype})"


READERS: dict[str, Callable[[object], object]] = {
    "target": _text,
    "args": _texts,
    "model": _text,
    "loss": _text,
    "batch": _text,
    "inputs": _inputs,
    "steps": _count,
    "keep-going": _flag,
    "verify": _flag,
    "time-limit": _seconds,
    "fail-on": _severity,
    "select": _texts,
    "ignore": _texts,
}
