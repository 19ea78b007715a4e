"""The folder for what a repeated run writes."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gradscope.programs.overlay import Overlay
from gradscope.programs.run_options import Repeat

_PLACES = ("/tmp", "/var/tmp", "/dev/shm", os.curdir)
_NAME = "gradscope-run-"
_YOUNG = 60.0  # seconds in which a folder that nobody holds may have been made just now


@contextmanager
def scratch_folder(repeat: Repeat | None) -> Iterator[str]:
    """One as long as the run lasts; OSError where none can be made. Nothing is written to find a
    place for it, as `tempfile` does: a program that writes nothing needs no room on any disk."""
    if repeat is None:
        yield ""
        return
    folder = _made()
    held = _held(folder)
    try:
        Overlay(folder).prepare()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def _made() -> str:
    given = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    refused = OSError()
    for place in (*filter(None, given), *_PLACES):
        folder = os.path.join(os.path.realpath(place), f"{_NAME}{secrets.token_hex(6)}")
        try:
            os.mkdir(folder, 0o700)
        except OSError as error:
            refused = error
        else:
            _remove_abandoned(os.path.dirname(folder))
            return folder
    raise refused


def _remove_abandoned(place: str) -> None:
    """What a run left that was killed with all its processes: nobody holds its lock any more."""
    with os.scandir(place) as entries:
        folders = [one.path for one in entries if one.name.startswith(_NAME)]
    for folder in folders:
        with suppress(OSError):
            is_old = time.time() - os.lstat(folder).st_mtime > _YOUNG
            if is_old and (held := _held(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)


def _held(folder: str) -> int | None:
    """A lock on it for this process and those that it forks, until the last of them is gone; None
    where another one has it, or there are no locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held
