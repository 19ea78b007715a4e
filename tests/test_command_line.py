"""What the command line says and takes: its help, its hints, and the options of verdicts."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from gradscope.cli import options

COMMANDS = ["trace", "fix", "norms", "check", "replay", "report", "explain", "examples"]
BROKEN = """\
import torch

x = torch.zeros(3, requires_grad=True)
x.sqrt().sum().backward()
"""


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.long
def test_help_is_in_words_and_whole(gradscope, command, columns):
    done = gradscope(*filter(None, [command]), "--help", COLUMNS=str(columns))

    assert done.returncode == 0
    assert not re.search(r"^  (-|[A-Z]).*<(str|int|float|path|list)", done.stdout, re.MULTILINE)
    assert not re.search(r"\w\.\.\.$", done.stdout, re.MULTILINE)  # a sentence that is cut off
    assert max(map(len, done.stdout.splitlines())) <= columns


def test_a_shell_completes_commands_without_torch(gradscope):
    done = gradscope(_GRADSCOPE_COMPLETE="complete_bash", COMP_WORDS="gradscope tr", COMP_CWORD="1")

    assert done.stdout.split() == ["trace"]


@pytest.mark.parametrize(
    ("words", "told", "hint"),
    [
        (["trace", "notes.txt"], "notes.txt is not a Python file", "name the .py file"),
        (["trace", "missing.py"], "there is no file missing.py", "where none is like it"),
        (["trace", "los.py"], "there is no file los.py", "did you mean loss.py?"),
        (
            ["trace", "loss.py", "--select", "GS999"],
            "unknown rule GS999",
            "help: `gradsc",
        ),
        (["trace", "loss.py", "--ignore", "zzz"], "unknown rule zzz", "help: `gradsc"),
        (["explain", "mask-branch"], "unknown rule mask-branch", "GS101 masked-branch?"),
        (["check", "--config", "bad.yaml"], "unknown key targts", "did you mean targets?"),
        (
            ["trace", "loss.py:two"],
            "loss.py:two needs inputs a, b that nobody gave",
            "--input 'a=torch.randn(8)' --input 'b=torch.randn(8)'",
        ),
    ],
)
@pytest.mark.long
def test_a_mistake_is_told_in_a_line_with_a_hint_that_helps(gradscope, tmp_path, words, told, hint):
    (tmp_path / "notes.txt").write_text("to do\n")
    (tmp_path / "loss.py").write_text("def two(a, b):\n    return (a * b).sum()\n")
    (tmp_path / "bad.yaml").write_text("targts: [loss.py]\n")

    done = gradscope(*words)
    line, help = done.stderr.splitlines()

    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("gradscope: error: ") and told in line
    assert hint in help


@pytest.mark.parametrize("command", ["trace", "check"])
@pytest.mark.long
def test_quiet_is_the_verdict_alone_and_exit_zero_only_reads(gradscope, tmp_path, command):
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "sound.py").write_text(BROKEN.replace("zeros", "ones"))

    broken = gradscope(command, "broken.py", "--quiet", "--no-verify")
    sound = gradscope(command, "sound.py", "-q")
    read = gradscope(command, "broken.py", "-q", "--exit-zero", "--no-verify")

    assert broken.stdout.startswith("broken.py: unhealthy (1 error; ")
    assert broken.stdout.count("\n") == 1
    assert (sound.stdout, sound.stderr) == ("", "")
    assert [broken.returncode, sound.returncode, read.returncode] == [1, 0, 0]


def test_quiet_says_how_many_of_several(gradscope, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)

    done = gradscope("check", "broken.py", "gamma_mask_fixed", "--quiet", "--no-verify")

    assert done.stdout.startswith("2 targets: 1 healthy, 1 unhealthy (1 error")
    assert done.stdout.count("\n") == 1


@pytest.mark.long
def test_trace_and_fix_leave_out_what_nobody_selected(gradscope, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)

    kept = gradscope("trace", "broken.py", "--select", "singular-derivative", "--no-verify")
    gone = gradscope("trace", "broken.py", "--select", "GS4")
    ignored = gradscope("trace", "broken.py", "--ignore", "GS102")
    fixed = gradscope("fix", "broken.py", "--select", "GS4")

    assert kept.returncode == 1 and "error[GS102]" in kept.stdout
    for run in (gone, ignored):
        assert run.returncode == 0
        assert run.stdout.startswith("1 finding left out by select or ignore\n")
        assert "no rule knows why" not in run.stdout
    assert (fixed.stdout, fixed.returncode) == ("", 0)


@pytest.mark.long
def test_norms_is_quiet_and_only_reads_with_exit_zero(gradscope, tmp_path):
    (tmp_path / "sound.py").write_text(BROKEN.replace("zeros", "ones"))
    told = gradscope("norms", "vanishing", "-q")
    read = gradscope("norms", "vanishing", "-q", "--exit-zero")
    sound = gradscope("norms", "sound.py", "-q")

    assert told.stdout.endswith("\nvanishing: unhealthy (GS402 vanishing-gradient)\n")
    assert [told.returncode, read.returncode] == [1, 0]
    assert (sound.stdout, sound.stderr, sound.returncode) == ("", "", 0)


def test_a_command_finds_in_the_context_what_it_was_given():
    """Older releases of typer hand over a path, and have a text in the context."""

    @options.sharing("output", "quiet")
    def command(context: typer.Context) -> int:
        assert context.params == {"output": Path("report.txt"), "quiet": True}
        return 5

    context = SimpleNamespace(params={"output": "report.txt", "quiet": True})

    assert command(context=context, output=Path("report.txt"), quiet=True) == 5
