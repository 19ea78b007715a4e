"""The real command in real processes: what it prints where, and its exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import typer
from conftest import paths

from gradscope import __version__
from gradscope.cli import main
from gradscope.examples import EXAMPLES
from gradscope.facts import Ending, Finding, Phase, Report, Severity, Trace
from gradscope.pipeline import exit_code
from gradscope.report import FORMATS
from gradscope.rules import RULES

MASKED = """\
import sys
import torch

print("the program's own words", sys.argv[1:])
x = torch.tensor([0.0, 4.0], requires_grad=True)
torch.where(x > 0, x.sqrt(), x).sum().backward()
"""
HEALTHY = "import torch\nx = torch.ones(3, requires_grad=True)\nx.sum().backward()\n"
LOOP = """\
import time, torch
x = torch.ones(3, requires_grad=True)
while True:
    x.sum().backward()
    print("step", flush=True)
    time.sleep(0.05)
"""


def test_an_unmodified_script_is_traced(gradscope, tmp_path):
    (tmp_path / "loss.py").write_text(MASKED)

    done = gradscope("trace", "loss.py", "--", "--lr", "1")

    assert done.returncode == 1
    said, report = done.stdout.split("\n", 1)
    assert said == "the program's own words ['--lr', '1']"
    assert report.startswith("error[GS101] masked-branch: ")
    assert "--> loss.py:6:" in report
    assert "= verified: " in report
    assert done.stderr == ""
    assert (tmp_path / "loss.py").read_text() == MASKED


def test_a_run_that_was_cut_short_is_not_called_healthy_without_saying_so(gradscope, tmp_path):
    (tmp_path / "train.py").write_text(LOOP)

    done = gradscope("trace", "train.py", "--steps", "3")

    assert done.returncode == 0
    closing = " ".join(done.stdout.replace("step\n", "").split())
    assert closing.startswith(
        "train.py: incomplete: every loss and gradient was finite until the limit of 3 steps ended"
        " it; --steps N goes further (3 steps, "
    )


def test_the_time_is_that_of_the_whole_command(tmp_path, capsys):
    """What is imported before the command line is read is a tenth of it, or more."""
    (tmp_path / "loss.py").write_text(HEALTHY)

    main(["trace", str(tmp_path / "loss.py")], began=time.monotonic() - 2_000)

    assert re.search(r"ops,\s+2,0\d\d\s+s\)", capsys.readouterr().out)


def test_json_has_stdout_to_itself(gradscope, tmp_path):
    (tmp_path / "loss.py").write_text(MASKED)

    done = gradscope("trace", "loss.py", "--format", "json", "--no-verify")

    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (1, "unhealthy")
    assert report["findings"][0]["location"]["line"] == 6
    assert report["findings"][0]["fixes"][0]["verified"] is None
    assert done.stderr == "the program's own words []\n"


def test_a_report_in_a_file_leaves_stdout_to_the_program(gradscope, tmp_path):
    (tmp_path / "loss.py").write_text(MASKED)

    done = gradscope("trace", "loss.py", "--format", "json", "-o", "report.json")

    assert (done.returncode, done.stdout) == (1, "the program's own words []\n")
    assert json.loads((tmp_path / "report.json").read_text())["target"] == "loss.py"


def test_no_target_is_an_example_and_says_so(gradscope):
    done = gradscope("trace", "--no-verify")

    assert done.returncode == 1
    assert "no target given: this is the built-in example gamma_mask" in done.stdout


def test_the_configuration_speaks_where_the_command_line_does_not(gradscope, tmp_path):
    below = tmp_path / "deep"
    below.mkdir()
    (tmp_path / "losses.py").write_text("def loss(x): return (x - x).sqrt().sum()")
    (tmp_path / "gradscope.yaml").write_text(
        "target: losses.py:loss\ninputs: {x: 'torch.ones(2)'}\nignore: [GS1]\n"
    )

    done = gradscope("trace", "--no-verify", cwd=below)

    assert done.returncode == 0, done.stdout
    assert "../losses.py:loss" in done.stdout


@pytest.mark.parametrize(
    ("rules", "code"), [("[GS101]", 0), ("[masked-branch]", 0), ("", 0), ("[GS201]", 1)]
)
@pytest.mark.long
def test_a_finding_that_a_comment_accepts_does_not_fail(gradscope, tmp_path, rules, code):
    lines = MASKED.splitlines()
    lines[5] += f"  # gradscope: ignore{rules}"
    (tmp_path / "loss.py").write_text("\n".join(lines))

    done = gradscope("trace", "loss.py", "--no-verify")

    assert done.returncode == code, done.stdout
    assert ("GS101" in done.stdout) == bool(code)
    assert ("1 finding accepted by a comment\n" in done.stdout) == (not code)


def test_a_program_that_fails_by_itself_is_no_finding(gradscope, tmp_path):
    (tmp_path / "train.py").write_text(HEALTHY + "raise ValueError('no more data')\n")

    done = gradscope("trace", "train.py", "--format", "json")

    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (2, "failed")


@pytest.mark.long
def test_ctrl_c_gives_a_report(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    command = [sys.executable, "-m", "gradscope", "trace", "train.py", "--steps", "100000"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "step\n"

        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        rest = process.stdout.read()

    assert process.returncode == 2
    assert time.monotonic() - started < 5  # a second on a machine that does nothing else
    assert "the program was interrupted: Ctrl-C" in rest
    assert "train.py: incomplete: every loss and gradient was finite until Ctrl-C ended it" in rest


@pytest.mark.parametrize("raised", [KeyboardInterrupt, typer.Exit(130)])
def test_ctrl_c_outside_of_a_program_is_said(capsys, monkeypatch, raised):
    def interrupted(*_: object) -> None:
        raise raised

    monkeypatch.setattr("gradscope.config.load_config", interrupted)

    assert main(["trace", "gamma_mask"]) == 130
    assert capsys.readouterr().err == "gradscope: error: interrupted\n"


def test_ctrl_c_while_the_commands_are_imported_is_said():
    code = """if True:
        import builtins, os, signal, sys
        from gradscope.__main__ import main

        plainly = builtins.__import__

        def interrupted(name, *rest):
            if name == "typer":
                os.kill(os.getpid(), signal.SIGINT)
            return plainly(name, *rest)

        builtins.__import__ = interrupted
        sys.exit(main())
    """

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (130, "gradscope: error: interrupted\n")


@pytest.mark.long
def test_a_closed_pipe_is_no_error(tmp_path):
    (tmp_path / "loss.py").write_text(MASKED.replace("print(", "("))
    command = f"{sys.executable} -m gradscope trace loss.py --no-verify | head -c 1 >/dev/null"

    done = subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )

    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("words", [["--help"], ["trace", "--help"], ["explain"], ["examples"]])
def test_what_runs_no_program_imports_no_torch(words):
    code = "import sys; from gradscope.cli import main; main(sys.argv[1:]); print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment(), capture_output=True, text=True
    )

    loaded = done.stdout.splitlines()[-1].split()
    assert "gradscope.cli" in loaded
    assert not {"torch", "numpy", "rich"} & set(loaded)


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": paths(), "NO_COLOR": "1"}


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gradscope {__version__}\n"


@pytest.mark.parametrize("command", ["trace", "check"])
def test_the_help_names_every_format(capsys, command):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out

    assert [name for name in FORMATS if name not in out] == []


def test_every_example_is_listed(capsys):
    assert main(["examples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)


def test_every_rule_is_listed(capsys):
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(RULES)


@pytest.mark.parametrize("rule", ["GS101", "masked-branch", "gs101"])
def test_one_rule_is_explained(capsys, rule):
    assert main(["explain", rule]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# GS101 masked-branch (error)\n\n## What it does\n")
    assert "## Use instead\n```python\n" in page


def test_an_unknown_command_names_the_nearest(capsys):
    assert main(["trac"]) == 2
    assert "Did you mean 'trace'?" in capsys.readouterr().err


def test_a_fault_of_ours_is_code_3(capsys, monkeypatch):
    monkeypatch.setattr("gradscope.examples.EXAMPLES", None)

    assert main(["examples"]) == 3
    err = capsys.readouterr().err
    assert "internal error: AttributeError: this is a fault of gradscope" in err
    assert "help: report it with the lines above" in err


def test_a_module_that_is_cut_off_is_no_interruption(capsys, monkeypatch):
    """Python says of a `.pyc` that it ends too soon as it does of input."""

    def cut_off(*_: object) -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr("gradscope.cli.explain._row", cut_off)

    assert main(["examples"]) == 3
    err = capsys.readouterr().err
    assert "EOFError: marshal data too short" in err
    assert "interrupted" not in err


def finding(severity: Severity) -> Finding:
    return Finding("GS101", "masked-branch", severity, Phase.BACKWARD, 0, "pow", "", "")


@pytest.mark.parametrize(
    ("found", "fail_on", "ending", "code"),
    [
        ([], "error", Ending("finished"), 0),
        ([Severity.ERROR], "error", Ending("finished"), 1),
        ([Severity.WARNING], "error", Ending("finished"), 0),
        ([Severity.WARNING], "warning", Ending("finished"), 1),
        ([Severity.NOTE], "note", Ending("finished"), 1),
        ([], "error", Ending("raised", code=1), 2),
        ([Severity.ERROR], "error", Ending("raised", code=1), 1),
        ([], "error", Ending("exited", code=0), 0),
        ([], "error", Ending("exited", code=7), 2),
        ([], "error", Ending("died", code=-11), 2),
        ([], "error", Ending("interrupted", code=130), 2),
        ([], "error", Ending("interrupted"), 0),  # --time-limit was reached, as asked
    ],
)
def test_exit_codes(found, fail_on, ending, code):
    report = Report("t.py", Trace("t.py", ending=ending), tuple(map(finding, found)))

    assert exit_code(report, Severity(fail_on)) == code


@pytest.mark.long
def test_what_a_program_does_about_its_own_exceptions_is_done(gradscope, tmp_path):
    hook = (
        "import sys, traceback\n"
        "def hook(kind, error, frames):\n"
        "    for frames in frames, error.__traceback__:\n"
        "        print(kind.__name__, [one.name for one in traceback.extract_tb(frames)])\n"
        "sys.excepthook = hook\n"
        "print(sorted(name for name in globals() if name.startswith('__')))\n"
    )
    raises = "y = x * 2\ny.register_hook(lambda grad: 1 / 0)\ny.sum().backward()\n"
    (tmp_path / "train.py").write_text(hook + HEALTHY + raises)
    bare = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    traced = gradscope("trace", "train.py", "--output", "report.txt")

    assert traced.stdout == bare.stdout
    assert bare.stdout.count("ZeroDivisionError ['<module>', 'backward'") == 2
