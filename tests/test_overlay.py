"""A repeated run sees its files as if it wrote them, and the disk stays as it was.

Every sequence of operations is done twice: in a folder, and through an overlay in a folder like it.
"""

import importlib
import multiprocessing
import os
import shutil
import sqlite3
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gradscope.programs import redirect
from gradscope.programs.overlay import Overlay

NAMES = ("a", "b", "d", "d/a", "d/e", "d/e/c", "new", "link")


def prepared(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a").write_text("one\n")
    (folder / "d" / "e").mkdir(parents=True)
    (folder / "d" / "a").write_text("two\n")
    (folder / "d" / "e" / "c").write_text("three\n")
    return folder


def _write(mode: str) -> Callable[..., Any]:
    def write(name: str, _: str) -> None:
        with open(name, mode) as file:
            file.write(f"{mode} {name}\n")

    return write


def _read(name: str, _: str) -> str:
    with open(name) as file:
        return file.read()


def _walk(name: str, _: str) -> list[Any]:
    return sorted((at, sorted(folders), sorted(files)) for at, folders, files in os.walk(name))


OPERATIONS: dict[str, Callable[[str, str], Any]] = {
    "w": _write("w"),
    "a": _write("a"),
    "x": _write("x"),
    "r+": _write("r+"),
    "read": _read,
    "exists": lambda a, b: os.path.exists(a),
    "lexists": lambda a, b: os.path.lexists(a),
    "isdir": lambda a, b: os.path.isdir(a),
    "isfile": lambda a, b: os.path.isfile(a),
    "islink": lambda a, b: os.path.islink(a),
    "size": lambda a, b: os.stat(a).st_size if os.path.isfile(a) else None,
    "listdir": lambda a, b: sorted(os.listdir(a)),
    "glob": lambda a, b: sorted(map(str, Path(a).rglob("*"))),
    "walk": _walk,
    "remove": lambda a, b: os.remove(a),
    "unlink": lambda a, b: Path(a).unlink(missing_ok=True),
    "mkdir": lambda a, b: os.mkdir(a),
    "makedirs": lambda a, b: os.makedirs(a, exist_ok=True),
    "rmdir": lambda a, b: os.rmdir(a),
    "rmtree": lambda a, b: shutil.rmtree(a),
    "rename": lambda a, b: os.rename(a, b),
    "replace": lambda a, b: os.replace(a, b),
    "copy": lambda a, b: Path(shutil.copy2(a, b)).name,
    "move": lambda a, b: str(shutil.move(a, b)),
    "symlink": lambda a, b: os.symlink(a, b),
    "truncate": lambda a, b: os.truncate(a, 2),
    "touch": lambda a, b: Path(a).touch(),
    "chmod": lambda a, b: os.chmod(a, 0o600),
    "chdir": lambda a, b: (os.chdir(a), os.path.basename(os.getcwd()), os.chdir(os.pardir))[1],
}


def outcomes(steps: list[tuple[str, str, str]], root: Path) -> list[Any]:
    """What each operation gave, and the whole tree as it is seen at the end."""
    os.chdir(root)
    told: list[Any] = []
    for operation, first, second in steps:
        try:
            told.append((operation, OPERATIONS[operation](first, second)))
        except (OSError, shutil.Error) as error:
            # Of two reasons against a renaming each system names another first.
            kind = OSError if operation in RENAMINGS else type(error)
            is_absolute = isinstance(error.filename, str) and os.path.isabs(error.filename)
            told.append((operation, kind.__name__, is_absolute))
            os.chdir(root)
    return [*told, tree(Path("."))]


def tree(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        kind = "link" if path.is_symlink() else "file" if path.is_file() else "folder"
        held = path.read_bytes() if kind == "file" else b""
        found[str(path.relative_to(root))] = kind, held
    return found


def in_another_process(function: Callable[[], Any]) -> Any:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def work() -> None:
        theirs.send(function())

    process = context.Process(target=work)
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def through(root: Path, scratch: Path, work: Callable[[], Any], gone: tuple[str, ...] = ()) -> Any:
    """What `work` gives in a process that sees `root` through an overlay."""

    def run() -> Any:
        redirect.install(overlay)
        os.chdir(root)
        return work()

    scratch.mkdir()
    overlay = Overlay(str(scratch), gone)
    overlay.prepare()
    return in_another_process(run)


RENAMINGS = ("rename", "replace", "move")
STEP = st.tuples(
    st.sampled_from(sorted(OPERATIONS)), st.sampled_from(NAMES), st.sampled_from(NAMES)
)


@pytest.mark.slow
@example([("a", "a", "a"), ("rename", "a", "d")])
@example([("a", "b", "b"), ("rmtree", "b", "b")])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(STEP, min_size=1, max_size=8))
def test_it_acts_as_the_disk_does(tmp_path_factory, steps):
    at = tmp_path_factory.mktemp("overlay").resolve()
    plain, seen = prepared(at / "plain"), prepared(at / "seen")
    expected = in_another_process(lambda: outcomes(steps, plain))
    before = tree(seen)

    assert through(seen, at / "scratch", lambda: outcomes(steps, seen)) == expected
    assert tree(seen) == before


def _saved() -> float:
    torch.save({"w": torch.ones(3)}, "w.pt")
    return float(torch.load("w.pt")["w"].sum())


def _saved_and_mapped() -> float:
    torch.save({"w": torch.ones(3)}, "w.pt")
    return float(torch.load("w.pt", mmap=True)["w"].sum())


def _array() -> float:
    np.save("n.npy", np.ones(3))
    return float(np.load("n.npy").sum())


def _raw() -> float:
    np.ones(4).tofile("n.bin")
    return float(np.fromfile("n.bin").sum())


def _text() -> float:
    np.savetxt("n.txt", np.ones(2))
    return float(np.loadtxt("n.txt").sum())


def _mapped() -> float:
    numbers: Any = np.memmap("m", dtype="float32", mode="w+", shape=(3,))
    numbers[:] = 2.0
    numbers.flush()
    return float(np.fromfile("m", dtype="float32").sum())


def _database() -> int:
    with sqlite3.connect("x.db") as database:
        database.execute("create table t (a)")
        database.execute("insert into t values (7)")
    return int(sqlite3.connect("x.db").execute("select a from t").fetchone()[0])


def _scripted() -> bool:
    torch.jit.trace(torch.nn.ReLU(), torch.ones(2)).save("m.pt")
    return os.path.exists("m.pt")


def _scripted_function() -> float:
    torch.jit.trace(torch.relu, torch.ones(2)).save("f.pt")
    return float(torch.jit.load("f.pt")(torch.ones(2)).sum())


def _profiled() -> bool:
    with torch.profiler.profile() as profile:
        torch.ones(2).sum()
    profile.export_chrome_trace("trace.json")
    return os.path.getsize("trace.json") > 0


def _safetensors() -> float:
    torch_files = importlib.import_module("safetensors.torch")
    torch_files.save_file({"w": torch.ones(3)}, "w.safetensors")
    return float(torch_files.load_file("w.safetensors")["w"].sum())


WORKS = (_saved, _saved_and_mapped, _array, _raw, _text, _mapped, _database, _scripted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "work",
    [
        *WORKS,
        _scripted_function,
        _profiled,
        pytest.param(
            _safetensors,
            marks=pytest.mark.skipif(find_spec("safetensors") is None, reason="not there"),
        ),
    ],
)
def test_what_a_library_writes_is_read_back_and_not_on_the_disk(tmp_path, work):
    seen = prepared(tmp_path / "seen")
    before = tree(seen)

    assert through(seen, tmp_path / "scratch", work)
    assert tree(seen) == before


def test_what_the_first_run_made_is_not_there_yet(tmp_path):
    seen = prepared(tmp_path / "seen")
    gone = (str(seen / "d"), str(seen / "a"))

    def work() -> list[Any]:
        found = [os.path.exists("a"), os.path.exists("d/e/c"), os.listdir()]
        os.mkdir("d")
        with open("a", "x") as file:
            file.write("again\n")
        return [*found, os.listdir("d"), Path("a").read_text()]

    assert through(seen, tmp_path / "scratch", work, gone) == [False, False, [], [], "again\n"]
    assert (seen / "a").read_text() == "one\n"


def test_a_file_has_the_name_that_the_program_gave_it(tmp_path):
    def work() -> list[str]:
        with open("new", "w") as file:
            return [file.name, os.path.realpath("new"), os.getcwd()]

    seen = prepared(tmp_path / "seen").resolve()
    assert through(seen, tmp_path / "scratch", work) == ["new", str(seen / "new"), str(seen)]


def test_temporary_files_are_the_runs_own(tmp_path):
    import tempfile

    def work() -> bool:
        tempfile.mkstemp()
        return str(tempfile.mkdtemp()).startswith(str(tmp_path / "scratch"))

    assert through(prepared(tmp_path / "seen"), tmp_path / "scratch", work)
