"""What the README shows is what happens."""

import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from gradscope.errors import ExitCode
from gradscope.facts import DEFAULT_LIMITS
from gradscope.rules import RULES

ROOT = Path(__file__).resolve().parent.parent
README = ROOT.joinpath("README.md").read_text(encoding="utf-8")


def block(after: str) -> str:
    """The first fenced block below a piece of text."""
    return README.partition(after)[2].split("```")[1].partition("\n")[2]


def without_seconds(report: str) -> str:
    return re.sub(r"\d+\.\d+ s\b", "0.0 s", report).strip()


def test_the_report_is_what_the_program_gets(gradscope, tmp_path):
    (tmp_path / "my_loss.py").write_text(block("## What it looks like"))
    run = gradscope("trace", "my_loss.py")

    assert without_seconds(run.stdout) == without_seconds(block("prints\n"))
    assert run.returncode == ExitCode.FINDINGS
    assert "= verified: " in "\n".join(run.stdout.splitlines()[:24])  # on the first screen


def test_the_example_in_python_prints_what_it_says(tmp_path):
    (tmp_path / "my_loss.py").write_text(block("## What it looks like"))
    done = subprocess.run(
        [sys.executable, "-c", block("### From Python")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    told = re.search(r"^prints `(.+?)`", README.partition("### From Python")[2], re.MULTILINE)
    assert told is not None and done.stdout.strip() == told[1]


def test_every_cause_is_listed():
    listed = re.findall(r"^\| (GS\d+) \| ([a-z-]+) \|", README, re.MULTILINE)

    assert listed == [(rule.code, rule.name) for rule in RULES.values()]


def test_every_exit_code_is_listed():
    assert re.findall(r"^\| (\d) \|", README, re.MULTILINE) == [
        str(code.value) for code in ExitCode
    ]


def test_every_threshold_is_listed_with_its_default():
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| ([\d.e-]+) \|", README, re.MULTILINE))
    limits = {name.replace("_", "-"): value for name, value in asdict(DEFAULT_LIMITS).items()}

    assert {name: float(value) for name, value in listed.items()} == limits


def test_every_picture_is_there_and_small():
    pictures = re.findall(r'<img src="([^"]+)"[^>]* alt="[^"]{20,}"', README)

    assert pictures
    assert all(0 < (ROOT / picture).stat().st_size < 150_000 for picture in pictures)


def test_every_command_shown_exists(gradscope):
    shown = set(re.findall(r"^    gradscope (\w+)", README, re.MULTILINE))
    offered = re.findall(r"^  (\w+) {2,}\S", gradscope("--help").stdout, re.MULTILINE)

    assert shown == set(offered)


@pytest.mark.slow
def test_every_command_shown_runs(gradscope, tmp_path):
    (tmp_path / "my_loss.py").write_text(block("## What it looks like"))
    (tmp_path / "gradscope.yaml").write_text("targets: [my_loss.py]\n")
    shown = re.findall(r"^    gradscope (.+?)\s+# ", README, re.MULTILINE)

    ended = {words: gradscope(*words.split()) for words in shown}

    assert len(ended) >= 6
    for words, run in ended.items():
        finds = words.startswith(("trace", "check", "report", "replay"))
        assert run.returncode == (ExitCode.FINDINGS if finds else ExitCode.OK), (words, run.stderr)
        assert run.stdout
