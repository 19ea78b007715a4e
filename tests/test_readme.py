"""What the README shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import Command

from gradscope.errors import ExitCode
from gradscope.rules import RULES

README = Path(__file__).resolve().parent.parent.joinpath("README.md").read_text(encoding="utf-8")


def block(after: str) -> str:
    """The first fenced block below a piece of text."""
    return README.partition(after)[2].split("```")[1].partition("\n")[2]


def without_seconds(report: str) -> str:
    return re.sub(r"\d+\.\d+ s\b", "0.0 s", report).strip()


def test_the_report_is_what_the_program_gets(gradscope: Command, tmp_path: Path):
    (tmp_path / "my_loss.py").write_text(block("## What it looks like"))
    run = gradscope("trace", "my_loss.py")

    assert without_seconds(run.stdout) == without_seconds(block("prints\n"))
    assert run.returncode == ExitCode.FINDINGS


def test_every_cause_is_listed():
    listed = re.findall(r"^\| (GS\d+) \| ([a-z-]+) \|", README, re.MULTILINE)

    assert listed == [(rule.code, rule.name) for rule in RULES.values()]


def test_every_exit_code_is_listed():
    assert re.findall(r"^\| (\d) \|", README, re.MULTILINE) == [
        str(code.value) for code in ExitCode
    ]


def test_every_command_shown_exists(gradscope: Command):
    shown = set(re.findall(r"^    gradscope (\w+)", README, re.MULTILINE))
    offered = re.findall(r"^  (\w+) {2,}\S", gradscope("--help").stdout, re.MULTILINE)

    assert shown == set(offered)
