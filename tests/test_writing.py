"""Files that are written together: all of them or none, with all that was theirs."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gradscope.errors import GradscopeError
from gradscope.writing import Changed, Content, write_together


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("a.py", "b.py", "c.py")]
    for path in paths:
        path.write_bytes(b"old")
    return paths


def contents(files: list[Path]) -> list[Content]:
    return [Content(path, b"new", b"old") for path in files]


def texts(files: list[Path]) -> list[bytes]:
    return [path.read_bytes() for path in files]


def failing(monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> None:
    """The `at`th call of a function of `os` finds the disk full."""
    calls = iter(range(1000))
    real: Callable[..., object] = getattr(os, name)

    def fail(*given: object, **named: object) -> object:
        if next(calls) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*given, **named)

    monkeypatch.setattr(os, name, fail)


def test_all_are_written(files):
    write_together(contents(files))

    assert texts(files) == [b"new"] * 3
    assert sorted(files[0].parent.iterdir()) == files


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_full_disk_leaves_all_as_they_were(name, at, files, monkeypatch):
    """Six files are made beside the old ones (new and kept contents), and three are renamed."""
    if name == "replace" and at > 2:
        pytest.skip("there are three to rename")
    with monkeypatch.context() as broken:
        failing(broken, name, at)
        with pytest.raises(GradscopeError, match="No space left on device"):
            write_together(contents(files))

    assert texts(files) == [b"old"] * 3
    assert sorted(files[0].parent.iterdir()) == files


@pytest.mark.parametrize("at", range(9))
def test_a_change_at_any_point_is_refused_or_comes_afterwards(at, files, monkeypatch):
    """Somebody saves the last file while ours are written: their text is never lost."""
    calls = iter(range(1000))
    real = os.fsync

    def save(handle: int) -> None:
        if next(calls) == at:
            files[-1].write_bytes(b"theirs")
        real(handle)

    monkeypatch.setattr(os, "fsync", save)
    try:
        write_together(contents(files))
    except Changed:
        assert texts(files) == [b"old", b"old", b"theirs"]
    else:
        assert next(calls) <= at or files[-1].read_bytes() == b"theirs"


def test_names_mode_and_links_are_kept(files, tmp_path):
    first, second, third = files
    first.chmod(0o750)
    twin, link = tmp_path / "twin.py", tmp_path / "link.py"
    os.link(second, twin)
    link.symlink_to(third)

    write_together(contents([first, second, link]))

    assert first.stat().st_mode & 0o777 == 0o750
    assert twin.read_bytes() == b"new" and twin.samefile(second)
    assert link.is_symlink() and third.read_bytes() == b"new"


def test_a_linked_file_gets_its_content_back(files, tmp_path, monkeypatch):
    os.link(files[0], tmp_path / "twin.py")
    failing(monkeypatch, "replace", 1)

    with pytest.raises(GradscopeError):
        write_together(contents(files))

    assert texts([*files, tmp_path / "twin.py"]) == [b"old"] * 4


def test_extended_attributes_are_kept(files):
    if not hasattr(os, "setxattr"):
        pytest.skip("no extended attributes on this system")
    try:
        os.setxattr(files[0], "user.origin", b"here")
    except OSError:
        pytest.skip("this file system keeps no extended attributes")

    write_together(contents(files))

    assert os.getxattr(files[0], "user.origin") == b"here"
