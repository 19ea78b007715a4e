"""The folder for what a repeated run writes."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from gradscope.programs.options import Repeat
from gradscope.programs.overlay import Overlay

_PLACES = ("/tmp", "/var/tmp", "/dev/shm", os.curdir)


@contextmanager
def scratch_folder(repeat: Repeat | None) -> Iterator[str]:
    """One as long as the run lasts; OSError where none can be made. Nothing is written to find a
    place for it, as `tempfile` does: a program that writes nothing needs no room on any disk."""
    if repeat is None:
        yield ""
        return
    folder = _made()
    try:
        Overlay(folder).prepare()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made() -> str:
    given = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    refused = OSError()
    for place in (*filter(None, given), *_PLACES):
        folder = os.path.join(os.path.realpath(place), f"gradscope-{secrets.token_hex(6)}")
        try:
            os.mkdir(folder, 0o700)
        except OSError as error:
            refused = error
        else:
            return folder
    raise refused
