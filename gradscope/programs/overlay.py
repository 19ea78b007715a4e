"""The files as a repeated run sees them: what it writes lies in a folder of its own.

Every path has three states: written in this run (its copy lies below `upper`), gone (deleted in
this run, or made by the first one and so not there yet), or as it is on the disk.
"""

import errno
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

from gradscope.programs.run_options import Repeat

_THEN = "then"  # in its folder: what was written until a copy of the process was made
LARGEST = 2 * 2**30  # bytes of a file that is copied because the program writes into it


class Overlay:
    """Maps absolute paths of the program to where they lie. It asks the disk itself: its callers
    see to it that nothing is redirected meanwhile."""

    def __init__(self, folder: str, gone: Iterable[str] = ()) -> None:
        self._left: tuple[str, ...] = ()  # where copies lay before it moved
        self._lie_in(folder)
        self.gone = set(gone)
        self.is_used = bool(self.gone)  # nothing is redirected before

    def _lie_in(self, folder: str) -> None:
        self.folder = folder
        self.upper = os.path.join(folder, "files")
        self.temporary = os.path.join(folder, "tmp")

    def prepare(self) -> None:
        """Make what it needs of the empty folder. Raises OSError where the disk is full."""
        os.mkdir(self.upper)
        os.mkdir(self.temporary)

    def remember(self) -> None:
        """What was written so far is there when it moves, and no more. Raises OSError."""
        shutil.copytree(self.upper, os.path.join(self.folder, _THEN), symlinks=True)

    def move(self, folder: str) -> None:
        """To another one that is prepared."""
        remembered, self._left = os.path.join(self.folder, _THEN), (*self._left, self.upper)
        self._lie_in(folder)
        shutil.copytree(remembered, self.upper, symlinks=True, dirs_exist_ok=True)

    def restore(self, folders: Iterable[str]) -> None:
        """Those that are not on the disk any more are there again, empty."""
        for one in folders:
            if not os.path.lexists(one):
                self.is_used = True
                os.makedirs(self.copy_of(one), exist_ok=True)

    def copy_of(self, path: str) -> str:
        """Where the copy of a path lies; a temporary file in the overlay is its own copy."""
        return path if self.is_ours(path) else self.upper + path

    def shown(self, real: str) -> str:
        """The program's name for a path."""
        for upper in (self.upper, *self._left):
            if real.startswith(upper + os.sep):
                return real[len(upper) :]
        return real

    def is_ours(self, path: str) -> bool:
        return path == self.folder or path.startswith(self.folder + os.sep)

    def is_gone(self, path: str) -> bool:
        return is_within(path, self.gone)

    def read(self, path: str) -> str:
        """Where to look for it. What is gone is looked for where nothing is."""
        copy = self.copy_of(path)
        return copy if os.path.lexists(copy) or self.is_gone(path) else path

    def enter(self, path: str) -> str:
        """Where to change directory to: the folder on the disk, unless only this run has it."""
        return path if os.path.isdir(path) and not self.is_gone(path) else self.read(path)

    def write(self, path: str, *, anew: bool = False) -> str:
        """Where to write it; `anew`: nothing of what it held is needed."""
        copy = self.copy_of(path)
        if os.path.lexists(copy):
            return copy
        there = self.read(path) != copy and os.path.lexists(path)
        if there and (os.path.isdir(path) or not os.access(path, os.W_OK)):
            return path  # which is refused there as well
        self._make_parent(path)
        if there:
            if anew:
                os.close(os.open(copy, os.O_CREAT | os.O_WRONLY, 0o600))
                shutil.copymode(path, copy)
            else:
                _copy(path, copy)
        return copy

    def _make_parent(self, path: str) -> None:
        """Make the copy of its folder. Raises FileNotFoundError where there is no such folder."""
        parent = os.path.dirname(path)
        real = self.read(parent)
        if not stat.S_ISDIR(os.stat(real).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if real == parent and not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        self.is_used = True
        os.makedirs(self.copy_of(parent), exist_ok=True)

    def remove(self, path: str) -> None:
        """A file or a link."""
        real = self.read(path)
        if stat.S_ISDIR(os.lstat(real).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if real == self.copy_of(path):
            os.remove(real)
        self.hide(path)

    def hide(self, path: str) -> None:
        self.is_used = True
        if os.path.lexists(path):
            self.gone.add(path)

    def new(self, path: str) -> str:
        """Where to make what must not be there yet."""
        if os.path.lexists(self.read(path)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._make_parent(path)
        return self.copy_of(path)

    def remove_folder(self, path: str) -> None:
        if os.path.islink(self.read(path)):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if self.names(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        real = self.read(path)
        if real == self.copy_of(path):
            os.rmdir(real)
        self.hide(path)

    def rename(self, source: str, target: str) -> None:
        real = self.read(source)
        os.lstat(real)
        if source == target:
            return
        if target.startswith(source + os.sep):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), source)
        self._make_parent(target)
        copy = self.copy_of(target)
        if stat.S_ISDIR(os.lstat(real).st_mode):
            if os.path.lexists(self.read(target)):
                self.remove_folder(target)
            os.rename(self._whole(source), copy)
        elif self._is_folder(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        elif real == self.copy_of(source):
            os.replace(real, copy)
        else:
            if os.path.lexists(copy):
                os.remove(copy)  # it may be a link, which a copy would follow
            _copy(source, copy)
        self.hide(source)

    def _is_folder(self, path: str) -> bool:
        """And no link to one."""
        real = self.read(path)
        return os.path.isdir(real) and not os.path.islink(real)

    def _whole(self, path: str) -> str:
        """A folder with all that it holds, as a copy."""
        copy = self.copy_of(path)
        if os.path.lexists(path) and not self.is_gone(path):
            os.makedirs(copy, exist_ok=True)
            for name in self.names(path):
                below = os.path.join(path, name)
                if self._is_folder(below):
                    self._whole(below)
                else:
                    self.write(below)
        return copy

    def names(self, path: str) -> list[str]:
        """The names in a folder."""
        copy = self.copy_of(path)
        made = os.listdir(copy) if os.path.lexists(copy) else None
        if self.is_gone(path):
            return os.listdir(copy)
        try:
            there = os.listdir(path)
        except OSError:
            if made is None:
                raise
            there = []
        left = [name for name in there if os.path.join(path, name) not in self.gone]
        return list(dict.fromkeys((*left, *(made or ()))))

    def is_mixed(self, path: str) -> bool:
        """Whether a folder holds other names than those on the disk, or is none there."""
        if os.path.lexists(self.copy_of(path)) or self.is_gone(path):
            return True
        return any(os.path.dirname(one) == path for one in self.gone)


def is_within(path: str, places: Collection[str]) -> bool:
    """Whether it, or a folder that holds it, is one of these."""
    while path not in places:
        path, last = os.path.dirname(path), path
        if path == last:
            return False
    return True


def _copy(source: str, target: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    if os.path.getsize(source) > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), source)
    shutil.copy2(source, target)


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
