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


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def reader(
    words: str, holds: Callable[[Any], bool], made: Callable[[Any], Any] = lambda value: value
) -> Reader:
    """Reads what `holds`, which must be what `words` say, as what is `made` of it."""

    def read(value: object) -> Any:
        if not holds(value):
            raise WrongValue(f"must be {words}, got {says(value)}")
        return made(value)

    return read


text = reader("text", lambda value: isinstance(value, str))
flag = reader("true or false", lambda value: isinstance(value, bool))
count = reader("a whole number from 1", lambda value: type(value) is int and value >= 1)
number = reader("a number", is_number, float)
finite = reader("a finite number", lambda value: math.isfinite(number(value)), float)
positive = reader("above 0", lambda value: 0 < number(value) < math.inf, float)


def texts(value: object) -> tuple[str, ...]:
    """A list, or a single value for a list of one; numbers are written out, as in a shell."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(v, str | int | float) for v in values):
        raise WrongValue(f"must be a list of words, got {says(value)}")
    return tuple(map(str, values))


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


def words(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """A tuple of words; a single word becomes a tuple of one, None stays None."""
    return (given,) if isinstance(given, str) else None if given is None else tuple(given)
