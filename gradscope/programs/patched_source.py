"""Patched source in place of a file's, for one process and without touching the file."""

from __future__ import annotations

import linecache
import os
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType


def install(patches: Mapping[str, str]) -> None:
    """Make imports and tracebacks of this process see the patched text; not undone.

    Only the child process that runs one program calls this. `get_code` is overridden and not
    `get_data`, because a cached .pyc would be taken without asking for the source.
    """
    original = SourceFileLoader.get_code
    for path, text in patches.items():
        for name in {path, os.path.abspath(path), os.path.realpath(path)}:
            # Without a modification time linecache never looks at the file again.
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        text = patched(patches, path)
        return original(self, fullname) if text is None else compiled(text, path)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]


def patched(patches: Mapping[str, str], path: str | Path) -> str | None:
    """The text that stands in for a file; None where the file itself is meant."""
    for name in (str(path), os.path.abspath(path), os.path.realpath(path)):
        if name in patches:
            return patches[name]
    return None


def compiled(source: str | bytes, path: str | Path) -> CodeType:
    """Compiled as Python would: without the `from __future__` lines of this module."""
    code: CodeType = compile(source, str(path), "exec", dont_inherit=True)
    return code
