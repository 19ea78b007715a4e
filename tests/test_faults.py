"""What goes wrong around us: a rule that raises, a full disk, a closed pipe, a lost source file."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gradscope.cli import main
from gradscope.diagnose import diagnose
from gradscope.errors import GradscopeError
from gradscope.facts import Finding, Location, Subject, Symptom, Trace, Trouble
from gradscope.rules import RULES
from gradscope.writing import write_whole

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="Linux has a disk that is always full")


def test_a_rule_that_raises_costs_its_own_verdict_alone(monkeypatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(type(RULES["GS404"]), "check", fail)

    (note,) = diagnose(Trace("t"))

    assert note.rule == "GS901"
    assert "GS404" in note.message


def test_what_is_said_twice_of_one_place_is_told_once(monkeypatch):
    rule, here = RULES["GS404"], Location("t.py", 1, 0, 1, 4, "<module>")
    symptoms = [Symptom(Trouble.ZERO, Subject.GRADIENT, 0, name) for name in "ab"]

    def repeat(*_: object) -> Iterator[Finding]:
        for symptom in symptoms:
            finding = rule.found("stands still", "why", location=here)
            yield replace(finding, symptoms=(symptom,))
        yield rule.found("stands still", "why", location=replace(here, line=2))

    monkeypatch.setattr(type(rule), "check", repeat)

    first, other = diagnose(Trace("t"))

    assert first.symptoms == tuple(symptoms)
    assert other.location != here


@needs_full
@pytest.mark.parametrize(
    "words",
    [("explain",), ("examples",), ("trace", "--no-verify", "gamma_mask"), ("norms",)],
    ids=lambda words: words[0],
)
@pytest.mark.long
def test_a_full_disk_is_no_fault_of_ours(words, tmp_path):
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gradscope", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
            cwd=tmp_path,
        )

    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last == f"gradscope: error: the output could not be written: {os.strerror(errno.ENOSPC)}"
    assert "Traceback" not in done.stderr


@needs_full
def test_a_report_to_a_full_disk_is_told(gradscope):
    done = gradscope("trace", "--no-verify", "gamma_mask", "--output", FULL)

    assert done.returncode == 2
    assert "--output /dev/full: No space left on device" in done.stderr
    assert "help: the report went to stdout instead" in done.stderr
    assert "error[GS101]" in done.stdout


@needs_full
def test_a_trace_that_cannot_be_saved_is_told_after_the_report(gradscope):
    done = gradscope("trace", "--no-verify", "gamma_mask", "--save", FULL)

    assert done.returncode == 2
    assert "error: --save /dev/full: No space left on device" in done.stderr
    assert "error[GS101]" in done.stdout


@needs_full
def test_a_report_to_a_full_disk_does_not_cost_the_others(gradscope, tmp_path):
    both = ("--report", f"sarif={FULL}", "--report", "junit=tests.xml")

    done = gradscope("check", "--no-verify", "gamma_mask", *both)

    assert done.returncode == 2
    assert "error: --report /dev/full: No space left on device" in done.stderr
    assert "error[GS101]" in done.stdout
    assert "GS101" in (tmp_path / "tests.xml").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("trace", "loss.py", "--output", "report.txt"),
        ("norms", "loss.py", "--output", "report.txt"),
        ("norms", "loss.py", "--html", "page.html"),
        ("check", "loss.py", "--report", "sarif=report.sarif"),
        ("check", "loss.py", "--write-baseline", "--baseline", "known.json"),
    ],
    ids=" ".join,
)
def test_a_folder_that_is_read_only_is_told_before_the_program_runs(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("loss.py").write_text("print('it ran', flush=True)\n")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)

    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    option = words[-2] if words[-2] != "--write-baseline" else words[-1]
    assert f"error: {option} " in err
    assert "lies in a folder that is read-only" in err


def test_a_patch_that_cannot_be_written_is_printed(tmp_path, monkeypatch, capsys):
    program = (
        "import torch\nx = torch.tensor([0.0, 1.0], requires_grad=True)\n"
        "torch.where(x > 0, x.sqrt(), x).sum().backward()\n"
    )
    monkeypatch.chdir(tmp_path)
    Path("loss.py").write_text(program)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)

    assert main(["fix", "loss.py", "--write"]) == 2
    out, err = capsys.readouterr()
    assert "+torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), x).sum().backward()" in out
    assert err.endswith(
        "gradscope: error: loss.py is read-only, and was left alone\n"
        "help: the patch went to stdout instead\n"
    )
    assert Path("loss.py").read_text() == program


@pytest.mark.slow
@needs_full
@pytest.mark.parametrize(
    ("command", "code"), [("trace", 1), ("check", 1), ("norms", 0), ("fix", 0)]
)
def test_a_run_needs_no_room_on_any_disk(command, code, tmp_path):
    no_file_grows = (
        "import resource, runpy, sys\n"
        "sys.dont_write_bytecode = True\n"  # it would be cut off, and read as it is later
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "runpy.run_module('gradscope', run_name='__main__')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", no_file_grows, command, "gamma_mask"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        cwd=tmp_path,
    )

    assert done.returncode == code
    assert "gradscope: error" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "streams", "code"),
    [
        ("trace --no-verify gamma_mask", ">&-", 1),
        ("trace --no-verify gamma_mask", "2>&-", 1),
        ("trace --no-verify gamma_mask", ">&- 2>&- <&-", 1),
        ("trace missing.py", "2>&-", 2),
        ("explain", "| head -c 1", 0),
        ("norms silent.py", "| head -c 0", 0),
        ("trace --no-verify gamma_mask", "2>/dev/full", 1),
    ],
)
def test_closed_streams_are_no_fault(words, streams, code, tmp_path):
    # It prints nothing, or an unbuffered print of its own could be what meets the closed pipe.
    silent = "import torch\ntorch.ones(2, requires_grad=True).sum().backward()\n"
    (tmp_path / "silent.py").write_text(silent)
    command = f"{sys.executable} -m gradscope {words} {streams}; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        cwd=tmp_path,
    )

    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_path_that_may_not_be_read_is_no_fault(monkeypatch, capsys):
    def forbidden(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_file", forbidden)

    assert main(["trace", "--config", "theirs/gradscope.yaml"]) == 2
    assert capsys.readouterr().err == (
        "gradscope: error: theirs/gradscope.yaml: Permission denied\n"
    )


def test_a_name_longer_than_any_file_is_shown_in_part(capsys):
    assert main(["trace", "x" * 5_000]) == 2
    assert len(capsys.readouterr().err) < 200


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    path.write_text("the report before")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(GradscopeError, match="nothing was written"):
        write_whole(path, "new")

    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "the report before"


def test_a_report_keeps_the_mode_of_its_file_and_follows_links(tmp_path):
    path, link = tmp_path / "report.json", tmp_path / "latest.json"
    path.write_text("")
    path.chmod(0o640)
    link.symlink_to(path)

    write_whole(link, "new")

    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_source_that_is_gone_costs_the_frame_and_not_the_finding(gradscope, tmp_path):
    (tmp_path / "gone.py").write_text(
        "import os\nimport torch\n\nos.remove(__file__)\n"
        "x = torch.tensor([0.0, 1.0], requires_grad=True)\n"
        "torch.where(x > 0, x.sqrt(), x).sum().backward()\n"
    )

    done = gradscope("trace", "gone.py")

    assert done.returncode == 1
    assert "gone.py:6:20" in done.stdout
    assert "gone.py: the source cannot be read" in " ".join(done.stdout.split())
    assert done.stderr == ""
