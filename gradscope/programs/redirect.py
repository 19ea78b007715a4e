"""Puts an overlay under a program: `open`, `os` and native writers then see that one.

Replaced where they are looked up, also under names that other modules gave them before. What gets
by (a reference that nobody can see) is told by an audit event, and stops the run before it writes.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, partialmethod, wraps
from multiprocessing import process
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

from gradscope.dataclass import dataclass
from gradscope.programs import native
from gradscope.programs.audit import (
    OPENS_TO_WRITE,
    as_the_program,
    is_own_work,
    is_special,
    own_work,
)
from gradscope.programs.overlay import Overlay

_ONLY_READS = frozenset("rbtU")
_READING = "access getxattr listxattr stat statvfs".split()
_READING_LINKS = "lstat readlink".split()
_CHANGING = "chmod chown utime truncate setxattr removexattr".split()
_CAPABILITIES = (
    os.supports_dir_fd,
    os.supports_fd,
    os.supports_follow_symlinks,
    os.supports_effective_ids,
)
_MOST_LINKS = 40  # that a path leads through, as on Linux
_Any = Callable[..., Any]


def install(overlay: Overlay) -> None:
    """Not undone: this process runs one program."""
    use_temporary(overlay)
    files = _Redirected(overlay)
    native.install(files.place(overlay.write), files.place(overlay.read))
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    pairs = tuple(files.functions())
    for known in _CAPABILITIES:
        known.update([new for old, new in pairs if old in known])
    taking_over = {id(old): new for old, new in pairs}
    gc.unfreeze()  # what was made before a fork is not looked through otherwise
    for holder in gc.get_referrers(*(old for old, _ in pairs)):
        if isinstance(holder, dict):
            for name in [key for key, value in holder.items() if id(value) in taking_over]:
                holder[name] = taking_over[id(holder[name])]
    gc.freeze()


def use_temporary(overlay: Overlay) -> None:
    """Temporary files lie in its folder."""
    os.environ["TMPDIR"] = overlay.temporary
    tempfile.tempdir = None
    process.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]


class _Redirected:
    """The functions that stand in for those of Python. The originals live in closures alone, where
    `install` does not replace them."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._folders: dict[str, str] = {}  # without the links on the disk that lead to them

    def functions(self) -> Iterator[tuple[_Any, _Any]]:
        """Each original with what takes its place."""
        overlay = self._overlay
        yield os.open, self._open(os.open)
        yield io.open, self._open_file(io.open)
        with suppress(ImportError):  # Python can be built without it
            from _sqlite3 import connect

            yield connect, self._connect(connect)
        yield os.getcwd, self._getcwd(os.getcwd)
        yield os.scandir, self._of_folder(os.scandir, partial(self._scanned, os.scandir))
        yield os.listdir, self._of_folder(os.listdir, self._listed)
        for name in filter(partial(hasattr, os), _READING):
            yield getattr(os, name), self._mapped(getattr(os, name), overlay.read)
        yield os.chdir, self._mapped(os.chdir, overlay.enter)
        for name in _READING_LINKS:
            yield getattr(os, name), self._mapped(getattr(os, name), overlay.read, follow=False)
        for name in filter(partial(hasattr, os), _CHANGING):
            yield getattr(os, name), self._mapped(getattr(os, name), overlay.write)
        yield os.mkdir, _unless_own_work(os.mkdir, partial(self._make, os.mkdir))
        yield os.rmdir, _unless_own_work(os.rmdir, partial(self._remove, overlay.remove_folder))
        for name in ("remove", "unlink"):
            original = getattr(os, name)
            yield original, _unless_own_work(original, partial(self._remove, overlay.remove))
        for name in ("rename", "replace"):
            yield getattr(os, name), _unless_own_work(getattr(os, name), self._rename)
        yield os.symlink, _unless_own_work(os.symlink, partial(self._symlink, os.symlink))
        yield os.link, _unless_own_work(os.link, partial(self._link, os.link))

    def place(self, of: Callable[[str], str]) -> _Any:
        """Where a native reader or writer finds a file; `of` is the overlay's `read` or `write`.
        Where there can be none, it fails in its own way."""

        def placed(path: Any) -> str:
            full = self._resolved(path)
            try:
                return of(full)
            except OSError:
                return self._overlay.copy_of(full)

        return _unless_own_work(lambda path: path, placed)

    def _open(self, original: _Any) -> _Any:
        @wraps(original)
        def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
            if self._is_left_alone(path, flags & OPENS_TO_WRITE):
                return original(path, flags, mode, dir_fd=dir_fd)
            with own_work(), _naming(path):
                return self._opened(original, self._resolved(path, dir_fd), flags, mode)

        return open

    def _opened(self, original: _Any, full: str, flags: int, mode: int) -> Any:
        overlay = self._overlay
        if not flags & OPENS_TO_WRITE or is_special(full):
            return original(overlay.read(full), flags, mode)
        there = os.path.lexists(overlay.read(full))
        if there and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), full)
        if not there and not flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), full)
        return original(overlay.write(full, anew=bool(flags & os.O_TRUNC)), flags, mode)

    def _open_file(self, original: _Any) -> _Any:
        """A file keeps the name that the program gave: only its descriptor leads elsewhere."""
        open_descriptor = os.open

        def opened(path: Any, flags: int) -> Any:
            with _naming(path):
                return self._opened(open_descriptor, self._resolved(path), flags, 0o666)

        @wraps(original)
        def open(
            file: Any,
            mode: Any = "r",
            buffering: Any = -1,
            encoding: Any = None,
            errors: Any = None,
            newline: Any = None,
            closefd: Any = True,
            opener: Any = None,
        ) -> Any:
            writes = not (isinstance(mode, str) and _ONLY_READS.issuperset(mode))
            text = (mode, buffering, encoding, errors, newline, closefd)
            if self._is_left_alone(file, writes):
                return original(file, *text, opener)
            with own_work():
                return original(file, *text, opened if opener is None else as_the_program(opener))

        return open

    def _connect(self, original: _Any) -> _Any:
        @wraps(original)
        def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
            name = os.fsdecode(database)
            if is_own_work() or name in ("", ":memory:") or name.startswith("file:"):
                return original(database, *args, **kwargs)
            with own_work(), _naming(database):
                place = self._overlay.write(self._resolved(database))
                return original(place, *args, **kwargs)

        return connect

    def _getcwd(self, original: _Any) -> _Any:
        @wraps(original)
        def getcwd() -> Any:
            return self._overlay.shown(original())

        return getcwd

    def _of_folder(self, original: _Any, given: Callable[[Any, str], Any]) -> _Any:
        """`given` is called with the folder as the program names it, and with its one name."""

        @wraps(original)
        def call(path: Any = None) -> Any:
            folder = "." if path is None else path
            if self._is_left_alone(folder, False):
                return original(folder)
            with own_work(), _naming(folder):
                return given(folder, self._resolved(folder))

        return call

    def _scanned(self, scandir: _Any, folder: Any, full: str) -> Any:
        as_named = full == os.path.abspath(os.fsdecode(folder))
        if as_named and not self._overlay.is_mixed(full):
            return scandir(folder)
        return _Entries(folder, self._overlay.names(full))

    def _listed(self, folder: Any, full: str) -> list[Any]:
        names = self._overlay.names(full)
        return list(map(os.fsencode, names)) if isinstance(folder, bytes) else names

    def _mapped(self, original: _Any, place: Callable[[str], str], follow: bool = True) -> _Any:
        writes = place == self._overlay.write

        @wraps(original)
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_left_alone(path, writes):
                return original(path, *args, **kwargs)
            with own_work(), _naming(path):
                links = follow and kwargs.get("follow_symlinks", True)
                full = self._resolved(path, kwargs.pop("dir_fd", None), follow=links)
                return original(place(full), *args, **kwargs)

        return call

    def _make(
        self, original: _Any, path: Any, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> None:
        original(self._overlay.new(self._resolved(path, dir_fd, follow=False)), mode)

    def _remove(
        self, remove: Callable[[str], None], path: Any, *, dir_fd: int | None = None
    ) -> None:
        remove(self._resolved(path, dir_fd, follow=False))

    def _rename(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        source = self._resolved(src, src_dir_fd, follow=False)
        self._overlay.rename(source, self._resolved(dst, dst_dir_fd, follow=False))

    def _symlink(
        self, original: _Any, src: Any, dst: Any, *args: Any, dir_fd: int | None = None, **kw: Any
    ) -> None:
        place = self._overlay.new(self._resolved(dst, dir_fd, follow=False))
        original(os.fsdecode(src), place, *args, **kw)

    def _link(self, original: _Any, src: Any, dst: Any, **kwargs: Any) -> None:
        place = self._overlay.new(self._resolved(dst, follow=False))
        original(self._overlay.write(self._resolved(src)), place)

    def _is_left_alone(self, path: Any, writes: object) -> bool:
        """What is asked by ourselves, or is open already; and what is read before anything was
        written."""
        return is_own_work() or isinstance(path, int) or not (writes or self._overlay.is_used)

    def _resolved(self, path: Any, dir_fd: int | None = None, *, follow: bool = True) -> str:
        """The one name of what a path leads to; of a link itself where it is not followed."""
        name = os.fsdecode(path)
        if dir_fd is not None and not os.path.isabs(name):
            name = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
        name = self._overlay.shown(os.path.abspath(name))
        for _ in range(_MOST_LINKS if follow else 1):
            folder, last = os.path.split(name)
            if folder not in self._folders:
                self._folders[folder] = os.path.realpath(folder)
            name = os.path.join(self._folders[folder], last)
            real = self._overlay.read(name)
            if not (follow and os.path.islink(real)):
                break
            name = os.path.normpath(os.path.join(self._folders[folder], os.readlink(real)))
        return name


@dataclass(frozen=True, slots=True)
class _Entry:
    name: Any
    path: Any

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return os.lstat(self.path).st_ino

    def _is(self, kind: Callable[[int], bool], *, follow_symlinks: bool = True) -> bool:
        try:
            return kind(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except FileNotFoundError:
            return False

    is_dir = partialmethod(_is, S_ISDIR)
    is_file = partialmethod(_is, S_ISREG)
    is_symlink = partialmethod(_is, S_ISLNK, follow_symlinks=False)


class _Entries:
    """Stands in for the result of `os.scandir` where part of a folder lies in the overlay."""

    def __init__(self, folder: Any, names: list[str]) -> None:
        given = map(os.fsencode, names) if isinstance(folder, bytes) else names
        self._entries = iter([_Entry(name, os.path.join(folder, name)) for name in given])

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _unless_own_work(original: _Any, instead: _Any) -> _Any:
    """Calls `instead` for the program, and the original for our own code."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_own_work():
            return original(*args, **kwargs)
        with own_work(), _naming(args[0] if args else next(iter(kwargs.values()), None)):
            return instead(*args, **kwargs)

    return call


@contextmanager
def _naming(path: Any) -> Iterator[None]:
    """An error names the path that the program gave."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise
