"""Inputs of a function: an expression, a value, or the description of a tensor."""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gradscope.config.scalars import (
    Key,
    WrongValue,
    entries,
    flag,
    is_number,
    reader,
    says,
    text,
    unknown,
)
from gradscope.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a function target: a Python expression with torch in scope.

    `requires_grad` None means: a floating tensor does, unless the expression says otherwise.
    An `optional` one is meant for all targets, and used where a function takes that name.
    `range` and `nonempty` are what the user declares of every value that the function will see.
    `place` is where a configuration has it: "gradscope.yaml:3:5".
    """

    name: str
    expression: str
    requires_grad: bool | None = None
    optional: bool = False
    range: tuple[float, float] | None = None
    nonempty: bool = False
    place: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        return f"{self.place}: inputs {self.name}" if self.place else f"--input {self.name}"


def inputs(value: object) -> tuple[Input, ...]:
    if not isinstance(value, dict):
        raise WrongValue(f"must be names with values, got {says(value)}")
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
            numbers(spec)
            return Input(name, f"torch.tensor({spec!r})", optional=True)
        case dict():
            return _tensor(name, spec)
    return Input(name, repr(spec), optional=True)


WHOLE = ("bool", "uint8", "int8", "int16", "short", "int32", "int", "int64", "long")
FLOATING = ("bfloat16", "float16", "half", "float32", "float", "float64", "double")
COMPLEX = ("complex64", "cfloat", "complex128", "cdouble")


def dtype(value: object) -> str:
    word: str = text(value).removeprefix("torch.")
    known = dict.fromkeys((*FLOATING, *WHOLE, *COMPLEX))
    if word not in known:
        raise WrongValue(f"has an {unknown('dtype', word, known)}")
    return word


shape = reader(
    "a list of whole numbers from 0",
    lambda value: (
        isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
    ),
    tuple,
)
seed = reader("a whole number", lambda value: type(value) is int and -(2**63) <= value < 2**63)


def numbers(value: object) -> list[float]:
    """All numbers of a nested list, whose lists at one depth must be of one length."""
    if is_number(value) or isinstance(value, bool):
        return [float(value)]
    if not isinstance(value, list):
        raise WrongValue(f"must be numbers in lists, got {says(value)}")
    sizes = {len(item) if isinstance(item, list) else -1 for item in value}
    if len(sizes) > 1:
        raise WrongValue("must be lists of one length at each depth, as in a tensor")
    return [number for item in value for number in numbers(item)]


def ends(limits: object) -> tuple[float, float]:
    if not (isinstance(limits, list) and len(limits) == 2 and all(map(is_number, limits))):
        raise WrongValue(f"must be two numbers, got {says(limits)}")
    low, high = limits
    if not (math.isfinite(low) and math.isfinite(high)):
        raise WrongValue(f"must end at finite numbers, got {limits}")
    if not low <= high:
        raise WrongValue(f"must begin with the smaller number, got {limits}")
    return low, high


TENSOR_KEYS: dict[str, Key] = {
    "values": Key(numbers, "Numbers, nested as the tensor is."),
    "shape": Key(shape, "The size of each dimension; [] is a single number."),
    "range": Key(
        ends,
        "Values are uniform between these two, and never outside them. Whole numbers: both "
        "included.",
    ),
    "dtype": Key(dtype, "A torch dtype (float32)."),
    "seed": Key(seed, "Values are the same at each run in any case; this chooses others."),
    "requires_grad": Key(flag, "Whether a gradient is wanted (of floating tensors: true)."),
    "nonempty": Key(flag, "The tensor is never empty: check --stress tries no empty one."),
}


def _tensor(name: str, spec: Mapping[str, Any]) -> Input:
    found = entries(spec, TENSOR_KEYS, "a tensor")
    dtype, limits = found.get("dtype", "float32"), found.get("range")
    if "values" not in found:
        expression = _random(found.get("shape", ()), dtype, limits, found.get("seed"))
    elif "shape" in found:
        raise WrongValue("has values and a shape\ngive one of them", "shape")
    elif limits and not all(limits[0] <= one <= limits[1] for one in found["values"]):
        low, high = limits
        raise WrongValue(f"values lie outside of the range from {low} to {high}", "values")
    else:
        chosen = f", dtype=torch.{dtype}" if "dtype" in found else ""
        expression = f"torch.tensor({spec['values']!r}{chosen})"
    wants_grad, nonempty = found.get("requires_grad"), found.get("nonempty", False)
    return Input(name, expression, wants_grad, True, limits, nonempty)


def _random(
    shape: tuple[int, ...], dtype: str, limits: tuple[float, float] | None, seed: int | None
) -> str:
    seeded = f", generator=torch.Generator().manual_seed({seed})" if seed is not None else ""
    if dtype in WHOLE:
        low, high = limits or (0, 1)
        if low != int(low) or high != int(high):
            raise WrongValue(f"must be whole numbers for {dtype}, got {[low, high]}", "range")
        return f"torch.randint({int(low)}, {int(high)} + 1, {shape}{seeded}).to(torch.{dtype})"
    if limits is None:
        return f"torch.randn({shape}{seeded}).to(torch.{dtype})"
    low, high = limits
    return f"(torch.rand({shape}{seeded}) * ({high} - {low}) + {low}).to(torch.{dtype})"
