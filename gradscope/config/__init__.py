"""gradscope.yaml or [tool.gradscope] in pyproject.toml, as one frozen Config.

A mistake is one line with the place: `gradscope.yaml:3:1: unknown key stepz`. Adding a key is
adding a field to `Config` and a reader to `READERS`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradscope.config.documents import Document, Toml, Yaml
from gradscope.config.values import READERS, Input, WrongValue, unknown
from gradscope.errors import GradscopeError
from gradscope.facts import Severity

__all__ = ["Config", "Input", "find_config", "load_config"]

FILE_NAMES = ("gradscope.yaml", "gradscope.yml")


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
    if path is None:
        path = find_config(Path.cwd())
        if path is None:
            return Config()
        path = Path(os.path.relpath(path))
    if not path.is_file():
        raise GradscopeError(f"there is no configuration {path}", help="check --config")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GradscopeError(f"{path} cannot be read: {error}") from error
    document = Toml(path, text) if path.suffix == ".toml" else Yaml(path, text)
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


def read_config(document: Document) -> Config:
    values: dict[str, Any] = {}
    for key, value in document.content.items():
        reader = READERS.get(key)
        if reader is None:
            raise document.error((key,), unknown("key", key, READERS))
        try:
            values[key.replace("-", "_")] = reader(value)
        except WrongValue as error:
            raise document.error((key, *error.path), f"{key} {error}") from None
    return Config(path=document.path, **values)
