"""Writing files: whole or not at all, and several of them together; and reports to a file."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError


class Changed(GradscopeError):
    """A file is not what it was when the change to it was made up."""


@dataclass(frozen=True, slots=True)
class Content:
    """What is to stand in a file. `before` is what must stand there now; None where it is no
    matter. Where `shown` is given, messages call the file so."""

    path: Path
    data: bytes
    before: bytes | None = None
    shown: str = ""

    @property
    def name(self) -> str:
        return self.shown or str(self.path)


def write_together(contents: Sequence[Content]) -> None:
    """Put each content in its file, or leave all files as they were.

    Each new content lies complete on the disk before the first file changes, and is then renamed
    into its place; where a rename fails, those before it are undone. A link is followed, mode,
    owner and extended attributes are kept. A file of several names (hard links) is written in
    place, so that it keeps them, and gets its old content back where that fails.

    Raises Changed where a file is not what it was, and GradscopeError where one cannot be written.
    """
    with _Prepared() as prepared:
        for one in contents:
            prepared.add(one)
        prepared.put()


class _Prepared:
    """New contents beside the files that they are for, until they are put in or let go."""

    def __init__(self) -> None:
        self._ready: list[tuple[Content, Path, Path]] = []  # with the file and the temporary
        self._undo: list[tuple[Path, Path | None]] = []  # files put in, and what was there
        self._temporaries: list[Path] = []

    def __enter__(self) -> _Prepared:
        return self

    def __exit__(self, *failure: object) -> None:
        for path in self._temporaries:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def add(self, one: Content) -> None:
        file = one.path.resolve()
        _refuse_changed(one, file)
        if file.exists() and not os.access(file, os.W_OK):
            raise GradscopeError(f"{one.name} is read-only, and was left alone")
        with errors_about(one.name):
            self._ready.append((one, file, self._beside(file, one.data)))

    def put(self) -> None:
        try:
            for one, file, temporary in self._ready:
                with errors_about(one.name):
                    self._put(one, file, temporary)
        except BaseException:
            self._take_back()
            raise
        for folder in {file.parent for _, file, _ in self._ready}:
            _sync_folder(folder)

    def _put(self, one: Content, file: Path, temporary: Path) -> None:
        kept = self._beside(file, file.read_bytes()) if file.exists() else None
        _refuse_changed(one, file)  # as late as can be: whoever saved meanwhile loses nothing
        self._undo.append((file, kept))
        if kept is None:
            os.replace(temporary, file)
        else:
            _replace(file, temporary)

    def _take_back(self) -> None:
        for file, kept in reversed(self._undo):
            with suppress(OSError):
                if kept is None:
                    file.unlink(missing_ok=True)
                else:
                    _replace(file, kept)

    def _beside(self, file: Path, data: bytes) -> Path:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".gradscope-")
        self._temporaries.append(Path(name))
        with open(handle, "wb") as new:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
        os.chmod(name, 0o666 & ~umask())
        return Path(name)


def _refuse_changed(one: Content, file: Path) -> None:
    if one.before is None:
        return
    try:
        same = file.read_bytes() == one.before
    except OSError:
        same = False
    if not same:
        raise Changed(f"{one.name} changed since it was read, and was left alone")


@contextmanager
def errors_about(name: str) -> Iterator[None]:
    """Turns an OSError inside into a GradscopeError that names the file."""
    try:
        yield
    except OSError as error:
        raise GradscopeError(f"{name}: {error.strerror}; nothing was written") from error


def _replace(file: Path, new: Path) -> None:
    """By what lies in another one, with all that it has beside its content."""
    if file.stat().st_nlink == 1:
        _copy_attributes(file, new)
        os.replace(new, file)
        return
    with open(file, "r+b") as old:
        old.write(new.read_bytes())
        old.truncate()
        old.flush()
        os.fsync(old.fileno())


def _copy_attributes(source: Path, target: Path) -> None:
    """Mode, extended attributes, and the owner where the system lets us; not the times."""
    shutil.copystat(source, target)
    os.utime(target)
    known = source.stat()
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(target, known.st_uid, known.st_gid)
            os.chmod(target, known.st_mode & 0o7777)  # a change of owner takes some bits away


def _sync_folder(folder: Path) -> None:
    """Else the rename may be lost with the power; not every system has such a thing."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def umask() -> int:
    """The process's umask: the permission bits that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_writable(path: Path, *, asked_by: str) -> None:
    """Asked before the program runs, whose hours should not be lost to a path that takes no file.
    Raises GradscopeError."""
    folder = path.absolute().parent
    help = "name a file in a folder that may be written"
    if path.is_dir():
        reason, help = "is a directory", "name a file in it"
    elif not folder.is_dir():
        reason = "lies in a folder that does not exist"
        help = f"mkdir -p {shlex.quote(str(path.parent))}"
    elif not (os.access(folder, os.W_OK) or (path.exists() and os.access(path, os.W_OK))):
        reason = "may not be written" if path.exists() else "lies in a folder that is read-only"
    else:
        return
    raise GradscopeError(f"{asked_by} {path} {reason}", help=help)


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
