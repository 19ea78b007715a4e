"""gradscope.yaml or [tool.gradscope] in pyproject.toml, as one frozen Config.

A mistake is one line with the place: `gradscope.yaml:3:1: unknown key stepz`. Adding a key is
adding a field to `Config` and a reader to `READERS`.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradscope.errors import GradscopeError
from gradscope.facts import Severity

FILE_NAMES = ("gradscope.yaml", "gradscope.yml")


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


@dataclass(frozen=True, slots=True)
class Config:
    """What the user configured. `path` is the file, None where there is none."""

    path: Path | None = None
    target: str | None = None
    args: tuple[str, ...] = ()
    model: str | None = None
    loss: str | None = None
    batch: str | None = None
    inputs: tuple[Input, ...] = ()
    steps: int = 100
    keep_going: bool = False
    verify: bool = True
    time_limit: float | None = None
    fail_on: Severity = Severity.ERROR
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where relative paths of the configuration start."""
        return self.path.parent if self.path else Path()


def load_config(path: Path | None = None) -> Config:
    """The given file's, else the nearest one's from the current folder upwards, else defaults."""
    path = path or find_config(Path.cwd())
    if path is None:
        return Config()
    if not path.is_file():
        raise GradscopeError(f"there is no configuration {path}", help="check --config")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GradscopeError(f"{path} cannot be read: {error}") from error
    document = _Toml(path, text) if path.suffix == ".toml" else _Yaml(path, text)
    return read_config(document)


def find_config(folder: Path) -> Path | None:
    """The nearest gradscope.yaml or pyproject.toml with a [tool.gradscope] table."""
    for parent in (folder, *folder.parents):
        for name in FILE_NAMES:
            if (parent / name).is_file():
                return parent / name
        project = parent / "pyproject.toml"
        if project.is_file() and re.search(
            r"^\s*\[tool\.gradscope\b", project.read_text(errors="replace"), re.MULTILINE
        ):
            return project
    return None


def read_config(document: _Document) -> Config:
    values: dict[str, Any] = {}
    for key, value in document.content.items():
        reader = READERS.get(key)
        if reader is None:
            raise document.error((key,), _unknown("key", key, READERS))
        try:
            values[key.replace("-", "_")] = reader(value)
        except _WrongValue as error:
            raise document.error((key, *error.path), f"{key} {error}") from None
    return Config(path=document.path, **values)


class _WrongValue(Exception):
    """A value of the wrong sort; `path` leads from the key to it."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = path


class _Document:
    """A parsed file that can still tell where each key stands."""

    path: Path
    content: Mapping[str, Any]

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        raise NotImplementedError

    def error(self, keys: tuple[str, ...], message: str) -> GradscopeError:
        line, column = self.place(keys)
        message, _, help = message.partition("\n")
        return GradscopeError(f"{self.path}:{line}:{column}: {message}", help=help)


class _Yaml(_Document):
    def __init__(self, path: Path, text: str) -> None:
        import yaml

        self.path = path
        loader = yaml.SafeLoader(text)
        try:
            self._root = loader.get_single_node()
            self.content = loader.construct_document(self._root) if self._root else {}
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise GradscopeError(f"{path}{place}: {error.problem or error.context}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise GradscopeError(f"{path}: not YAML: {error}") from None
        finally:
            loader.dispose()
        if not isinstance(self.content, dict):
            raise GradscopeError(f"{path}:1:1: expected keys with values", help="such as steps: 10")
        self.content = {str(key): value for key, value in self.content.items()}

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        line, column = 0, 0
        node: Any = self._root
        for key in keys:
            pairs = node.value if node.id == "mapping" else ()
            found = next((pair for pair in pairs if pair[0].value == key), None)
            if found is None:
                break
            line, column = found[0].start_mark.line, found[0].start_mark.column
            node = found[1]
        return line + 1, column + 1


class _Toml(_Document):
    def __init__(self, path: Path, text: str) -> None:
        self.path, self._text = path, text
        try:
            self.content = tomllib.loads(text).get("tool", {}).get("gradscope", {})
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
            place = f":{found[1]}:{found[2]}" if found else ""
            raise GradscopeError(f"{path}{place}: {re.sub(r' [(]at .*', '', str(error))}") from None

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        """tomllib keeps no places: the first line after the table's head that sets the key."""
        lines = self._text.splitlines()
        start = next(
            (i for i, line in enumerate(lines) if line.strip().startswith("[tool.gradscope")), 0
        )
        for key in reversed(keys):
            pattern = re.compile(rf"[\s\[{{,]*(?:tool\.gradscope\.)?[\"']?{re.escape(key)}\b")
            for number, line in enumerate(lines[start:], start + 1):
                if pattern.match(line):
                    return number, line.index(key) + 1
        return start + 1, 1


def _unknown(what: str, key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    help = f"did you mean {near[0]}?" if near else "known are " + ", ".join(known)
    return f"unknown {what} {key}\n{help}"


def _says(value: object) -> str:
    return f"{type(value).__name__} {value!r}"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _WrongValue(f"must be text, got {_says(value)}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    """A list, or a single value for a list of one; numbers are written out, as in a shell."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(v, str | int | float) for v in values):
        raise _WrongValue(f"must be a list of words, got {_says(value)}")
    return tuple(map(str, values))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _WrongValue(f"must be true or false, got {_says(value)}")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _WrongValue(f"must be a whole number from 1, got {_says(value)}")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise _WrongValue(f"must be a number of seconds, got {_says(value)}")
    return float(value)


def _severity(value: object) -> Severity:
    try:
        return Severity(value)  # type: ignore[arg-type]
    except ValueError:
        words = ", ".join(Severity)
        raise _WrongValue(f"must be one of {words}, got {_says(value)}") from None


def _inputs(value: object) -> tuple[Input, ...]:
    if not isinstance(value, dict):
        raise _WrongValue(f"must be names with values, got {_says(value)}")
    found = []
    for name, spec in value.items():
        if not str(name).isidentifier():
            raise _WrongValue(f"has {name!r}, which is no Python name", str(name))
        try:
            found.append(_input(str(name), spec))
        except _WrongValue as error:
            raise _WrongValue(f"{name}: {error}", str(name), *error.path) from None
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
            raise _WrongValue(_unknown("key", str(key), TENSOR_KEYS), str(key))
    dtype = _text(spec.get("dtype", "float32")).removeprefix("torch.")
    wants_grad = _flag(spec["requires_grad"]) if "requires_grad" in spec else None
    if "values" in spec:
        chosen = f", dtype=torch.{dtype}" if "dtype" in spec else ""
        expression = f"torch.tensor({spec['values']!r}{chosen})"
        return Input(name, expression, wants_grad, optional=True)
    shape = spec.get("shape", [])
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
        raise _WrongValue(f"must be a list of whole numbers, got {_says(shape)}", "shape")
    return Input(name, _random(tuple(shape), dtype, spec), wants_grad, optional=True)


def _random(shape: tuple[int, ...], dtype: str, spec: Mapping[str, Any]) -> str:
    limits = spec.get("range")
    numbers = isinstance(limits, list) and all(isinstance(n, int | float) for n in limits)
    if limits is not None and not (numbers and len(limits) == 2):
        raise _WrongValue(f"must be two numbers, got {_says(limits)}", "range")
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
