"""gradscope inside of frameworks: clean, and with each planted bug, which is found at its line.

The programs are in tests/programs/inside. The line of a bug ends in `# bug: OLD => NEW`; each makes
a broken program of its own. The packages are the extra `integrations`.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

INSIDE = Path(__file__).parent / "programs" / "inside"
BUG = re.compile(r"  # bug: (.+) => (.+)$", re.MULTILINE)
# Repeated in place, with a patch that holds: a graph that is cut takes more than a step to see.
VERIFIED = re.compile(r"= verified: .*replayed from step \d+, losses identical", re.DOTALL)


def programs() -> list[Path]:
    return sorted(INSIDE.glob("*.py"))


def bugs() -> list[object]:
    return [
        pytest.param(path, number, id=f"{path.stem}-{number}")
        for path in programs()
        for number, _ in enumerate(BUG.finditer(path.read_text(encoding="utf-8")))
    ]


def broken(text: str, number: int) -> tuple[str, int]:
    """With one of its bugs, and the line of that."""
    bug = list(BUG.finditer(text))[number]
    start = text.rindex("\n", 0, bug.start()) + 1
    bad = text[:start] + text[start:].replace(*bug.groups(), 1)
    return bad, text.count("\n", 0, bug.start()) + 1


def run(path: Path, text: str, folder: Path, *launcher: str) -> str:
    package = path.stem.partition("_")[0]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    script = folder / path.name
    script.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launcher, script.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("went on\n"), done.stdout
    return done.stdout


@pytest.mark.parametrize("path", programs(), ids=lambda path: path.stem)
def test_a_clean_program_is_healthy(path, tmp_path):
    said = run(path, path.read_text(encoding="utf-8"), tmp_path)

    assert ": healthy: every loss and gradient was finite" in said, said
    assert "error[" not in said and "warning[" not in said and "note[" not in said, said


@pytest.mark.parametrize(("path", "number"), bugs())
def test_a_bug_is_found_at_its_line(path, number, tmp_path):
    text = path.read_text(encoding="utf-8")
    new = list(BUG.finditer(text))[number][2]
    bad, line = broken(text, number)

    said = run(path, bad, tmp_path)

    assert f"--> {path.name}:{line}:" in said.partition("error[")[2], said
    is_cut = new.endswith(".detach()")
    assert "error[GS403]" in said if is_cut else "error[GS403]" not in said, said
    if not is_cut and "Callback" in text:
        assert VERIFIED.search(said), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "one", "two", "launcher"),
    [
        ("lightning_automatic", '"cpu",', '"cpu", devices=2, strategy="ddp",', ()),
        ("transformers_trainer", "", "", ("-m", "torch.distributed.run", "--nproc-per-node=2")),
    ],
)
def test_two_processes_tell_one_report(name, one, two, launcher, tmp_path):
    """Each repeats the failing step without the others, and the one tells it that made the NaN."""
    path = INSIDE / f"{name}.py"
    text = path.read_text(encoding="utf-8").replace(one, two, 1)
    assert run(path, text, tmp_path, *launcher).count(": healthy: every loss") == 1
    bad, line = broken(text, 1)
    own = "(error * float(torch.distributed.get_rank())).sqrt()"
    bad = bad.replace("number >= 13", "number >= 5").replace("(error * 0).sqrt()", own)

    said = run(path, bad, tmp_path, *launcher)

    assert said.count("error[") == 1, said
    assert "of 2, where it went wrong first" in said, said
    assert f"--> {path.name}:{line}:" in said, said
    assert VERIFIED.search(said), said
