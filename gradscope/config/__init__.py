"""gradscope.yaml or [tool.gradscope] in pyproject.toml, as one frozen Config.

A mistake is one line with the place: `gradscope.yaml:3:1: unknown key stepz`. Adding a key is
adding a field to `Config` and an entry to `KEYS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from gradscope.config.documents import Document, Toml, Yaml, text_of
from gradscope.config.inputs import Input
from gradscope.config.keys import KEYS, NO_LIMITS, TARGET_KEYS, Thresholds
from gradscope.config.scalars import Key, WrongValue, unknown
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import Severity

__all__ = ["Config", "Input", "Thresholds", "errors_at", "find_config", "load_config"]

FILE_NAMES = ("gradscope.yaml", "gradscope.yml")


@dataclass(frozen=True, slots=True)
class Config:
    """What the user configured. `path` is the file, None where there is none.

    Each of `targets` is a whole Config: what its entry says, over what the file says for all.
    `origins` maps a key to the place that set it; `time_limit` and `verify_time` are in seconds,
    `memory_limit` in bytes on top of what torch takes itself.
    """

    path: Path | None = None
    target: str | None = None
    args: tuple[str, ...] = ()
    model: str | None = None
    loss: str | None = None
    batch: str | None = None
    inputs: tuple[Input, ...] = ()
    steps: int | None = None  # None: as many as the command goes by itself
    every_step: bool = False
    keep_going: bool = False
    verify: bool = True
    verify_time: float = 60.0
    verify_runs: int = 10
    rerun: bool = False
    custom_backward: bool = True
    time_limit: float | None = None
    fail_on: Severity = Severity.ERROR
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    device: str | None = None
    dtypes: tuple[str, ...] = ()
    thresholds: Thresholds = NO_LIMITS
    memory_limit: int | None = None
    stress: bool = False
    baseline: str | None = None
    jobs: int | None = None
    name: str | None = None
    targets: tuple[Config, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def folder(self) -> Path:
        """Where relative paths of the configuration start."""
        return self.path.parent if self.path else Path()

    def overridden(self, **given: Any) -> Config:
        """With fields of a command line, which no file has set then; None: it does not say. They
        hold for each of `targets` as well."""
        given = {name: value for name, value in given.items() if value is not None}
        keys = {name.replace("_", "-") for name in given}
        origins = {key: place for key, place in self.origins.items() if key not in keys}
        targets = tuple(one.overridden(**given) for one in self.targets)
        return replace(self, **given, origins=origins, targets=targets)


def load_config(path: Path | None = None) -> Config:
    """The given file's, else the nearest one's from the current folder upwards, else defaults."""
    if path is None:
        path = find_config(Path.cwd())
        if path is None:
            return Config()
        path = Path(os.path.relpath(path))
    if not path.is_file():
        raise GradscopeError(f"there is no configuration {path}", help="check --config")
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as error:
        raise GradscopeError(f"{path} cannot be read: {error}") from error
    document = Toml(path, text) if path.suffix == ".toml" else Yaml(path, text)
    return read_config(document)


@contextmanager
def errors_at(origin: str | None) -> Iterator[None]:
    """A mistake is told with the place of the configuration that makes it."""
    try:
        yield
    except GradscopeError as error:
        if origin is None:
            raise
        raise GradscopeError(f"{origin}: {error}", help=error.help) from None


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


def read_config(document: Document) -> Config:
    content = dict(document.content)
    listed = content.pop("targets", [])
    config = Config(path=document.path, **_read(document, content, KEYS, ()))
    if not isinstance(listed, list):
        raise document.error(("targets",), "targets must be a list")
    return replace(config, targets=tuple(_targets(document, listed, config)))


def _targets(document: Document, listed: list[object], config: Config) -> Iterator[Config]:
    """Each entry over what the file says for all; two must not have one name."""
    taken = set()
    for number, entry in enumerate(listed):
        path = ("targets", str(number))
        if isinstance(entry, str):
            entry = {"target": entry}
        if not isinstance(entry, dict):
            raise document.error(path, f"targets: an entry must be a target or keys, got {entry!r}")
        values = _read(document, entry, TARGET_KEYS, path)
        found = _over(config, values)
        if found.target is None and found.model is None:
            raise document.error(path, "targets: an entry names no target\ngive target: or model:")
        found = replace(found, name=found.name or found.target or found.model)
        if found.name in taken:
            raise document.error(
                (*path, "name"),
                f"targets: two are called {found.name}\ngive one a name: of its own",
            )
        taken.add(found.name)
        yield found


def _over(config: Config, values: dict[str, Any]) -> Config:
    origins = {**config.origins, **values.pop("origins")}
    if "inputs" in values:
        # What is given to one function must be one of its parameters; a script takes none at all.
        names_function = ":" in str(values.get("target", ""))
        own = tuple(replace(given, optional=not names_function) for given in values["inputs"])
        merged = {given.name: given for given in (*config.inputs, *own)}
        values["inputs"] = tuple(merged.values())
    if "target" in values or "model" in values:
        config = replace(config, target=None, model=None, loss=None, batch=None)
    return replace(config, **values, origins=origins)


def _placed(value: object, document: Document, path: tuple[str, ...]) -> object:
    """Inputs with the places where they stand: what is wrong with them may show only in the run."""
    if not (isinstance(value, tuple) and value and isinstance(value[0], Input)):
        return value
    return tuple(replace(one, place=document.shown((*path, one.name))) for one in value)


def _read(
    document: Document,
    content: Mapping[str, object],
    keys: Mapping[str, Key],
    path: tuple[str, ...],
) -> dict[str, Any]:
    """The fields of a Config that a mapping sets, and where it does."""
    values: dict[str, Any] = {}
    origins = {}
    for key, value in content.items():
        place = (*path, str(key))
        if key not in keys and key in KEYS:
            raise document.error(place, f"{key} belongs to the whole file\nmove it out of targets")
        if key not in keys:
            known = keys if path else {**keys, "targets": None}
            raise document.error(place, unknown("key", str(key), known))
        try:
            values[key.replace("-", "_")] = _placed(keys[key].read(value), document, place)
        except WrongValue as error:
            raise document.error((*place, *error.path), f"{key} {error}") from None
        origins[key] = document.shown(place)
    return {**values, "origins": origins}
