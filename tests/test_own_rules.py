"""Rules that another package brings, by the example of the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
PROGRAM = (
    "import torch\nx = torch.tensor([40.0, 1.0], requires_grad=True)\nx.square().sum().backward()\n"
)


def rule_of_the_readme() -> str:
    section = README.read_text(encoding="utf-8").partition("### Rules of your own")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    return found.group(1)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder with the package as an installer leaves it."""
    about = tmp_path / "site" / "acme_rules-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[gradscope.rules]\nacme = acme_rules\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "site"


def gradscope(site, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "gradscope", *arguments],
        env={**os.environ, "PYTHONPATH": str(site), "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )


def test_the_example_is_a_rule_as_the_others(installed):
    (installed / "acme_rules.py").write_text(rule_of_the_readme())

    told = gradscope(installed, "trace", "program.py")
    explained = gradscope(installed, "explain", "huge-loss")

    assert "error[ACME1] huge-loss: the loss is 1601" in told.stdout
    assert "--> program.py:3:" in told.stdout
    assert told.returncode == 1
    assert "Finds a loss above 1000." in explained.stdout


def test_it_can_be_ignored(installed):
    (installed / "acme_rules.py").write_text(rule_of_the_readme())

    told = gradscope(installed, "trace", "program.py", "--ignore", "ACME1")

    assert told.returncode == 0, told.stdout


TAKEN = """
from gradscope.rules import Rule


class Mine(Rule):
    code = "GS101"
    name = "mine"
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "cannot be loaded: division by zero"),
        (TAKEN, "has the code GS101, which another rule has"),
    ],
)
def test_what_is_no_rule_is_told(installed, text, said):
    (installed / "acme_rules.py").write_text(text)

    told = gradscope(installed, "explain")

    assert said in told.stderr
    assert told.returncode == 2
