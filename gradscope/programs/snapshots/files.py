"""The open files of a process that is copied: whether a copy can go on with them, and how."""

import fcntl
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress

from gradscope.dataclass import dataclass
from gradscope.programs.overlay import LARGEST, Overlay

_FDS = "/proc/self/fd"
_ONCE = os.O_CREAT | os.O_EXCL | os.O_TRUNC  # of an open's flags: not to be done again

Identity = tuple[int, int]  # of a file: device and inode


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file as it was at a moment: where reading or writing goes on, its size in bytes."""

    descriptor: int
    flags: int
    offset: int
    size: int


def streams(ours: Collection[int]) -> frozenset[Identity]:
    """What is open before the program runs, beside our own descriptors: standard streams, and what
    else whoever started us has left open."""
    return frozenset(_identity(state) for one, state in _descriptors() if one not in ours)


def open_files(ours: Collection[int], given: Collection[Identity]) -> tuple[OpenFile, ...] | None:
    """Those of the program, without our own descriptors and what it was `given` at its start; None
    where one is open that two processes cannot both go on with: a pipe or a socket."""
    found = []
    for descriptor, state in _descriptors():
        mode = state.st_mode
        if descriptor in ours or _identity(state) in given:
            continue
        if stat.S_ISCHR(mode) or stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            return None
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        found.append(OpenFile(descriptor, flags, offset, state.st_size))
    return tuple(found)


def separate(files: Collection[OpenFile], given: Collection[Identity], overlay: Overlay) -> None:
    """Give this process files of its own in the place of those that it shares with the one it was
    copied from: what is read goes on from the same place, what is written lies in the overlay, as
    it was when the copy was made. Nothing is printed, or read, that was open at the start.

    Raises OSError where there is no room for it, or a file is too large to be copied.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor, state in _descriptors():
        is_given = _identity(state) in given or os.isatty(descriptor)
        if is_given and descriptor != nowhere:
            os.dup2(nowhere, descriptor, os.get_inheritable(descriptor))
    for file in files:
        _reopen(file, overlay)
    os.close(nowhere)


def _reopen(file: OpenFile, overlay: Overlay) -> None:
    place = f"{_FDS}/{file.descriptor}"
    if file.flags & os.O_ACCMODE != os.O_RDONLY:
        place = _copied(file, overlay)
    anew = os.open(place, file.flags & ~_ONCE)
    os.lseek(anew, file.offset, os.SEEK_SET)
    os.dup2(anew, file.descriptor, os.get_inheritable(file.descriptor))
    os.close(anew)


def _copied(file: OpenFile, overlay: Overlay) -> str:
    """Where the copy lies: under the file's name, as long as it still is that file's."""
    place = f"{_FDS}/{file.descriptor}"
    name = os.readlink(place)
    with suppress(OSError):
        if os.path.samestat(os.stat(name), os.stat(place)):
            copy = overlay.write(overlay.shown(name))
            os.truncate(copy, file.size)
            return copy
    if file.size > LARGEST:
        raise OSError(f"{name} is too large to be copied")
    copy = os.path.join(overlay.temporary, f"open-{file.descriptor}")
    with open(place, "rb") as there, open(copy, "wb") as here:
        shutil.copyfileobj(there, here)
    os.truncate(copy, file.size)
    return copy


def _descriptors() -> Iterator[tuple[int, os.stat_result]]:
    for name in os.listdir(_FDS):
        with suppress(OSError):  # that of the listing itself
            yield int(name), os.fstat(int(name))


def _identity(state: os.stat_result) -> Identity:
    return state.st_dev, state.st_ino
