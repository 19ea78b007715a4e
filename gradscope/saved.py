"""A trace in a file, to be judged again without a run: facts as JSON, nothing of which is code.

    {"schema": "gradscope-trace/1", "gradscope": "0.9", "trace": {"fact": 7},
     "files": {"loss.py": "9f2c..."}, "facts": [{"is": "Location", "file": "loss.py", ...}, ...]}

Each fact is written once, after those that it refers to by their number. A field that has its
default is left out; an inf or NaN is {"float": "inf"}. What is read is checked against the types of
the fields.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from gradscope.config.documents import text_of
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import Location, Trace
from gradscope.version import __version__
from gradscope.writing import write_whole

SCHEMA = "gradscope-trace/1"
LARGEST = 64 * 1024**2  # bytes of a file
_HELP = "gradscope trace --save FILE writes one"


class Unfit(Exception):
    """The text is not a saved trace of this version."""


@dataclass(frozen=True, slots=True)
class Saved:
    """`files` are the sources that the trace points into, with a digest of what was in them."""

    trace: Trace
    files: Mapping[str, str] = field(default_factory=dict)

    def changed(self) -> tuple[str, ...]:
        """The files that are gone, or not as they were."""
        return tuple(name for name, digest in self.files.items() if _digest(name) != digest)


def save(trace: Trace, path: Path, *, asked_by: str = "") -> None:
    """Write a trace to a file. `asked_by` is the option that named it. Raises GradscopeError where
    it cannot be written."""
    write_whole(path, written(trace), asked_by=asked_by)


def load(path: Path, moved: Mapping[str, str] = MappingProxyType({})) -> Saved:
    """The trace of a file that `save` wrote; `moved` are files that it points into and that lie
    elsewhere now, by their names in it. Raises GradscopeError where it is none, is too large or is
    of another version."""
    try:
        return read(text_of(path, LARGEST), moved)
    except OSError as error:
        raise GradscopeError(f"{path} cannot be read: {error.strerror}", help=_HELP) from None
    except (Unfit, UnicodeDecodeError) as error:
        why = error if isinstance(error, Unfit) else "it is not text"
        raise GradscopeError(f"{path} is not a saved trace: {why}", help=_HELP) from None


def written(trace: Trace) -> str:
    """The text of a saved trace."""
    writer = _Writer()
    top = writer.value(trace)
    names = {str(row["file"]) for row in writer.rows if row["is"] == Location.__name__}
    digests = {name: digest for name in sorted(names) if (digest := _digest(name))}
    head = {"schema": SCHEMA, "gradscope": __version__, "trace": top, "files": digests}
    rows = ",\n".join(map(_line, writer.rows))
    return f'{_line(head)[:-1]}, "facts": [\n{rows}\n]}}\n'


def read(text: str, moved: Mapping[str, str] = MappingProxyType({})) -> Saved:
    """The trace that `written` wrote. Raises Unfit."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise Unfit(f"line {error.lineno}: {error.msg}") from None
    except (RecursionError, ValueError):
        raise Unfit("it does not parse") from None
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise Unfit("it names no schema")
    if document["schema"] != SCHEMA:
        raise Unfit(f"its schema is {document['schema'][:40]}, and this version reads {SCHEMA}")
    try:
        reader = _Reader(document["facts"], moved)
        trace, files = reader.value(document["trace"]), document["files"]
        if not isinstance(trace, Trace) or not _is_text_by_text(files):
            raise Unfit("it does not say what was traced")
    except (Unfit, LookupError, TypeError, ValueError, AttributeError) as error:
        by = str(document.get("gradscope"))[:40]
        other = "" if by == __version__ else f" (written by gradscope {by}, this is {__version__})"
        why = error if isinstance(error, Unfit) else "it does not hold together"
        raise Unfit(f"{why}{other}") from None
    return Saved(trace, files)


class _Writer:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._by_text: dict[str, int] = {}
        self._by_id: dict[int, int] = {}

    def value(self, value: object) -> Any:
        if isinstance(value, Enum):
            return {"enum": [type(value).__name__, value.name]}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(float(value))}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, tuple):
            return [self.value(one) for one in value]
        if isinstance(value, list):
            return {"list": [self.value(one) for one in value]}
        if type(value).__name__ in _classes():
            return {"fact": self._row(value)}
        raise TypeError(f"a trace does not hold a {type(value).__name__}")

    def _row(self, fact: Any) -> int:
        if id(fact) not in self._by_id:
            row: dict[str, Any] = {"is": type(fact).__name__}
            for one in fields(fact):
                value = self.value(getattr(fact, one.name))
                # As text: 0.0 is not -0.0, and 1 is not True.
                if one.default is MISSING or _line(value) != _line(self.value(one.default)):
                    row[one.name] = value
            number = self._by_text.setdefault(_line(row), len(self.rows))
            if number == len(self.rows):
                self.rows.append(row)
            self._by_id[id(fact)] = number
        return self._by_id[id(fact)]


class _Reader:
    def __init__(self, rows: list[dict[str, Any]], moved: Mapping[str, str]) -> None:
        self._facts: list[Any] = []
        self._moved = moved
        for row in rows:
            self._facts.append(self._fact(row))

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(self.value(one) for one in value)
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        match kind:
            case "fact" if type(content) is int and content >= 0:
                return self._facts[content]
            case "enum":
                name, member = content
                return _classes()[name][member]
            case "float" if content in ("inf", "-inf", "nan"):
                return float(content)
            case "list":
                return [self.value(one) for one in content]
        raise Unfit(f"it holds {kind!r} where a value should be")

    def _fact(self, row: dict[str, Any]) -> Any:
        cls = _classes()[row["is"]]
        types = _types(cls)
        values = {name: self.value(value) for name, value in row.items() if name != "is"}
        for name, value in values.items():
            if name not in types or not _fits(value, types[name]):
                raise Unfit(f"{cls.__name__}.{name} is not as in this version")
        if cls is Location:
            values["file"] = self._moved.get(values["file"], values["file"])
        return cls(**values)


@cache
def _classes() -> dict[str, Any]:
    """The kinds of facts and enums that a trace can hold, by name."""
    found: dict[str, Any] = {}
    waiting: list[Any] = [Trace]
    while waiting:
        hint = waiting.pop()
        waiting += get_args(hint)
        if isinstance(hint, type) and found.get(hint.__name__) is not hint:
            if is_dataclass(hint):
                waiting += _types(hint).values()
            elif not issubclass(hint, Enum):
                continue
            assert hint.__name__ not in found, f"two kinds of facts are called {hint.__name__}"
            found[hint.__name__] = hint
    return found


@cache
def _types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a field's type."""
    origin, given = get_origin(hint), get_args(hint)
    if hint is object:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in given)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if given[1:] == (...,):
            return all(_fits(one, given[0]) for one in value)
        return len(value) == len(given) and all(map(_fits, value, given))
    if hint is None or hint is NoneType:
        return value is None
    if hint in (int, float):  # an int is a float to the type checker, too
        return isinstance(value, int if hint is int else int | float) and type(value) is not bool
    return isinstance(value, hint)


def _is_text_by_text(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _digest(name: str) -> str | None:
    """The SHA-256 of a file; None where it cannot be read."""
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def _line(value: object) -> str:
    return json.dumps(value, allow_nan=False)
