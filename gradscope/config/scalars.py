"""Single values of a configuration, and the words for what they may not be."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

from gradscope.errors import did_you_mean

Reader = Callable[[object], Any]


class Key(NamedTuple):
    """What a key may hold, and what it is for: the schema and the command line say it so."""

    read: Reader
    words: str


class WrongValue(Exception):
    """A value of the wrong sort; `path` leads from the key to it."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = path


def unknown(what: str, key: str, known: Mapping[str, object]) -> str:
    help = did_you_mean(key, known, alike=0.5) or "known are " + ", ".join(known)
    return f"unknown {what} {key}\n{help}"


def says(value: object) -> str:
    return f"{type(value).__name__} {value!r}"


def text(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValue(f"must be text, got {says(value)}")
    return value


def texts(value: object) -> tuple[str, ...]:
    """A list, or a single value for a list of one; numbers are written out, as in a shell."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(v, str | int | float) for v in values):
        raise WrongValue(f"must be a list of words, got {says(value)}")
    return tuple(map(str, values))


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongValue(f"must be true or false, got {says(value)}")
    return value


def count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WrongValue(f"must be a whole number from 1, got {says(value)}")
    return value


def number(value: object) -> float:
    if not is_number(value):
        raise WrongValue(f"must be a number, got {says(value)}")
    return float(value)


def finite(value: object) -> float:
    found = number(value)
    if not math.isfinite(found):
        raise WrongValue(f"must be a finite number, got {says(value)}")
    return found


def positive(value: object) -> float:
    found = number(value)
    if not 0 < found < math.inf:
        raise WrongValue(f"must be above 0, got {says(value)}")
    return found


def entries(value: object, keys: Mapping[str, Key], what: str) -> dict[str, Any]:
    """The values of a mapping, read by its keys. `what` describes the mapping in an error."""
    if not isinstance(value, dict):
        raise WrongValue(f"must be {what}, got {says(value)}")
    found = {}
    for key, item in value.items():
        if key not in keys:
            raise WrongValue(f"has an {unknown('key', str(key), keys)}", str(key))
        try:
            found[key] = keys[key].read(item)
        except WrongValue as error:
            raise WrongValue(f"{key} {error}", str(key), *error.path) from None
    return found


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def words(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """A tuple of words; a single word becomes a tuple of one, None stays None."""
    return (given,) if isinstance(given, str) else None if given is None else tuple(given)
