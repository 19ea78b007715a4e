"""What each key of the configuration may hold, and the words for what it may not."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gradscope.facts import Limits, Severity


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a function target: a Python expression with torch in scope.

    `requires_grad` None means: a floating tensor does, unless the expression says otherwise.
    An `optional` one comes from the configuration and is used where a function takes that name.
    `range` and `nonempty` are what the user declares of every value that the function will see.
    """

    name: str
    expression: str
    requires_grad: bool | None = None
    optional: bool = False
    range: tuple[float, float] | None = None
    nonempty: bool = False


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits on what every step of a healthy run may show, None for none. Norms are total L2.
    The rest moves the limits of GS401 to GS404: None leaves those of `facts.Limits`."""

    max_grad_norm: float | None = None
    min_grad_norm: float | None = None
    max_loss: float | None = None
    gradient_growth: float | None = None
    gradient_fade: float | None = None
    gradient_rms: float | None = None
    gradient_share: float | None = None
    zero_passes: float | None = None
    loss_growth: float | None = None

    @property
    def limits(self) -> Limits:
        given = {name: getattr(self, name) for name in Limits.__slots__}
        return Limits(**{name: value for name, value in given.items() if value is not None})


NO_LIMITS = Thresholds()


PRECISIONS = (
    "float32",
    "float64",
    "bfloat16",
    "float16",
    "autocast",
    "autocast-bfloat16",
    "autocast-float16",
)
UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}


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


def _number(value: object) -> float:
    if not _is_number(value):
        raise WrongValue(f"must be a number, got {_says(value)}")
    return float(value)  # type: ignore[arg-type]


def _positive(value: object) -> float:
    number = _number(value)
    if not 0 < number < math.inf:
        raise WrongValue(f"must be above 0, got {_says(value)}")
    return number


def size(value: object) -> int:
    """A number of bytes, or text such as "2 GiB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
    unit = UNITS.get(found[2].lower()) if found else None
    if isinstance(value, bool) or found is None or not unit or int(float(found[1]) * unit) < 1:
        raise WrongValue(f"must be a size such as 2 GiB, got {_says(value)}")
    return int(float(found[1]) * unit)


def _precisions(value: object) -> tuple[str, ...]:
    words = _texts(value)
    for word in words:
        if word not in PRECISIONS:
            raise WrongValue(
                unknown("dtype", word, dict.fromkeys(PRECISIONS)).replace(
                    "unknown", "has an unknown"
                )
            )
    return tuple(dict.fromkeys(words))


def _thresholds(value: object) -> Thresholds:
    if not isinstance(value, dict):
        raise WrongValue(f"must be names with numbers, got {_says(value)}")
    known = {name.replace("_", "-"): name for name in Thresholds.__slots__}
    found = {}
    for key, limit in value.items():
        if key not in known:
            words = unknown("key", str(key), known).replace("unknown", "has an unknown", 1)
            raise WrongValue(words, str(key))
        name = known[key]
        found[name] = _at(str(key), _positive if name in Limits.__slots__ else _number, limit)
    return Thresholds(**found)


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
    "nonempty": "true or false: whether an empty tensor is never given",
}


def _tensor(name: str, spec: Mapping[str, Any]) -> Input:
    for key in spec:
        if key not in TENSOR_KEYS:
            raise WrongValue(unknown("key", str(key), TENSOR_KEYS), str(key))
    dtype = _text(spec.get("dtype", "float32")).removeprefix("torch.")
    wants_grad = _flag(spec["requires_grad"]) if "requires_grad" in spec else None
    limits = _range(spec.get("range"))
    nonempty = _at("nonempty", _flag, spec.get("nonempty", False))
    if "values" in spec:
        chosen = f", dtype=torch.{dtype}" if "dtype" in spec else ""
        expression = f"torch.tensor({spec['values']!r}{chosen})"
    else:
        shape = spec.get("shape", [])
        if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
            raise WrongValue(f"must be a list of whole numbers, got {_says(shape)}", "shape")
        expression = _random(tuple(shape), dtype, limits, spec)
    return Input(name, expression, wants_grad, True, limits, nonempty)


def _at(key: str, reader: Callable[[object], Any], value: object) -> Any:
    """The value of an inner key, whose mistakes are told at that key."""
    try:
        return reader(value)
    except WrongValue as error:
        raise WrongValue(f"{key} {error}", key, *error.path) from None


def _range(limits: object) -> tuple[float, float] | None:
    if limits is None:
        return None
    if not (isinstance(limits, list) and len(limits) == 2 and all(map(_is_number, limits))):
        raise WrongValue(f"must be two numbers, got {_says(limits)}", "range")
    low, high = limits
    if not low <= high:
        raise WrongValue(f"must begin with the smaller number, got {limits}", "range")
    return low, high


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _random(
    shape: tuple[int, ...], dtype: str, limits: tuple[float, float] | None, spec: Mapping[str, Any]
) -> str:
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
    "custom-backward": _flag,
    "time-limit": _seconds,
    "fail-on": _severity,
    "select": _texts,
    "ignore": _texts,
    "device": _text,
    "dtypes": _precisions,
    "thresholds": _thresholds,
    "memory-limit": size,
    "stress": _flag,
    "baseline": _text,
    "jobs": _count,
}
# What a target of a list may set for itself: all but what belongs to the check as a whole.
TARGET_READERS = {"name": _text} | {
    key: reader for key, reader in READERS.items() if key not in ("baseline", "jobs")
}
