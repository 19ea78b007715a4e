"""Writing a report to a file: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gradscope.errors import GradscopeError


def write_whole(path: Path, text: str, *, asked_by: str = "") -> None:
    """Put `text` (UTF-8) in a file, or leave what was there. `asked_by` is the option that named
    the file. Raises GradscopeError where that cannot be done."""
    try:
        in_place = path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))
        if in_place:  # a device, a pipe, or a file in a folder that takes no new one
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        named = f"{asked_by} {path}".lstrip()
        raise GradscopeError(f"{named}: {error.strerror}; nothing was written") from error


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".gradscope-")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _mode(path: Path) -> int:
    """What the file's permissions are, or what a new file would get."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
