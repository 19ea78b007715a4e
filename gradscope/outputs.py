"""Writing a report to a file: whole, or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.writing import Content, errors_about, write_together


def check_writable(path: Path, *, asked_by: str) -> None:
    """Asked before the program runs, whose hours should not be lost to a path that takes no file.
    Raises GradscopeError."""
    folder = path.absolute().parent
    if path.is_dir():
        reason = "is a directory"
    elif not folder.is_dir():
        reason = "lies in a folder that does not exist"
    elif not (os.access(folder, os.W_OK) or (path.exists() and os.access(path, os.W_OK))):
        reason = "may not be written" if path.exists() else "lies in a folder that is read-only"
    else:
        return
    raise GradscopeError(f"{asked_by} {path} {reason}", help="name a file to write")


def write_or_print(path: Path, text: str, *, asked_by: str) -> None:
    """`write_whole`; where that fails, what took hours to find goes to stdout."""
    try:
        write_whole(path, text, asked_by=asked_by)
    except GradscopeError as error:
        sys.stdout.write(text)
        sys.stdout.flush()
        raise GradscopeError(str(error), help="the report went to stdout instead") from error


def write_whole(path: Path, text: str, *, asked_by: str = "") -> None:
    """Put `text` (UTF-8) in a file, or leave what was there. `asked_by` is the option that named
    the file. Raises GradscopeError where that cannot be done."""
    named = f"{asked_by} {path}".lstrip()
    if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):
        # A device, a pipe, or a file in a folder that takes no new one.
        with errors_about(named):
            path.write_text(text, encoding="utf-8")
        return
    write_together([Content(path, text.encode(), shown=named)])
